// What a worker whose tensors are on a device does when the driver fails: the
// row goes by way of the host, and who pushes hears what cannot be helped.
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/device_memory/fake_cuda.h"
#include "tests/worker_client/client_fixture.h"
#include "tests/worker_client/device_worker.h"
#include "tests/worker_client/fake_job.h"
#include "worker_client/agg_client.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

constexpr int kInvalidValue = 1;

class DeviceFailuresTest : public testing::Test {
 protected:
  ~DeviceFailuresTest() override {
    for (const char* name : {"cuMemcpy", "cuMemcpyAsync", "cuEventSynchronize",
                             "cuPointerGetAttribute"}) {
      fake_cuda::Fail(name, 0);
    }
    EXPECT_EQ(fake_cuda::NumLive(), live_);
  }

  const int64_t live_ = fake_cuda::NumLive();
};

TEST_F(DeviceFailuresTest, AfterACopyThatFailedRowsGoByWayOfTheHost) {
  for (const char* name : {"cuMemcpyAsync", "cuEventSynchronize"}) {
    DeviceWorker worker(ManyTensors());
    ASSERT_TRUE(worker.Round(0.5f).ok());
    const int on_device = worker.shard.counts().frames_on_device;
    worker.gradient.Set(Values(ManyTensors(), 0.25f));
    fake_cuda::Fail(name, kInvalidValue);
    const absl::Status status = worker.client->Push(worker.gradient.Read());
    fake_cuda::Fail(name, 0);
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_THAT(Message(status), HasSubstr(name));
    ASSERT_TRUE(worker.Round(0.25f).ok());
    ASSERT_TRUE(worker.Round(0.125f).ok());
    EXPECT_EQ(worker.parameters.Get(),
              Expected(ManyTensors(), {0.5f, 0.25f, 0.125f}));
    EXPECT_EQ(worker.shard.counts().frames_on_device, on_device);
  }
}

// After an error that stays, say of an illegal address, the driver does not say
// whose memory it is: a device's must not be read like the host's.
TEST_F(DeviceFailuresTest, WhoseTensorsNobodyKnowsHearsIt) {
  DeviceWorker worker(TwoTensors());
  ASSERT_TRUE(worker.Round(0.5f).ok());
  for (const int code : {700, 999, 4}) {
    fake_cuda::Fail("cuPointerGetAttribute", code);
    const absl::Status statuses[] = {
        worker.client->Push(worker.gradient.Read()),
        worker.client->Pull(1, worker.parameters.Write()),
        worker.client->StartPush(worker.gradient.Read()).Wait(),
        worker.Round(0.25f),
    };
    fake_cuda::Fail("cuPointerGetAttribute", 0);
    for (const absl::Status& status : statuses) {
      EXPECT_TRUE(absl::IsInternal(status)) << status;
      EXPECT_THAT(Message(status), HasSubstr("from cuPointerGetAttribute"));
      EXPECT_THAT(Message(status), HasSubstr(std::to_string(code)));
    }
  }
  ASSERT_TRUE(worker.Round(0.25f).ok());
  EXPECT_EQ(worker.parameters.Get(), Expected(TwoTensors(), {0.5f, 0.25f}));
}

// Who has forked, say, has a driver that was never begun.
TEST_F(DeviceFailuresTest, WithoutABegunDriverAllIsTheHosts) {
  fake_cuda::Fail("cuPointerGetAttribute", 3);
  FakeJob job(TwoTensors(), {});
  const auto client = Connect(OptionsFor(job, TwoTensors()));
  std::vector<std::vector<float>> parameters = Values(TwoTensors(), 1);
  ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  const auto gradient = Values(TwoTensors(), 0.5f);
  ASSERT_TRUE(client->PushPull(Read(gradient), {}, Write(&parameters)).ok());
  EXPECT_EQ(parameters, Expected(TwoTensors(), {0.5f}));
}

}  // namespace
}  // namespace agg
