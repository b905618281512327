// What a worker whose tensors are on a device does when the driver fails: the
// row goes by way of the host, and who pushes hears what cannot be helped.
#include <grpcpp/support/status.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device_memory/device_stream.h"
#include "proto/shard_plan.h"
#include "tests/kernels/device_memory/fake_cuda.h"
#include "tests/worker_client/client_fixture.h"
#include "tests/worker_client/device_worker.h"
#include "tests/worker_client/fake_job.h"
#include "worker_client/agg_client.h"
#include "worker_client/tensor_view.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kInvalidValue = 1;

class DeviceFailuresTest : public testing::Test {
 protected:
  ~DeviceFailuresTest() override {
    fake_cuda::FailHostCopies(0);
    for (const char* name :
         {"cuMemcpyAsync", "cuEventSynchronize", "cuPointerGetAttribute"}) {
      fake_cuda::Fail(name, 0);
    }
    EXPECT_EQ(fake_cuda::NumLive(), live_);
  }

  const int64_t live_ = fake_cuda::NumLive();
};

// This row and those after it.
TEST_F(DeviceFailuresTest, WhatCannotBeCopiedOnTheDeviceGoesByWayOfTheHost) {
  const int slices = 2 + 64;
  for (const char* name : {"cuMemcpyAsync", "cuEventSynchronize"}) {
    DeviceWorker worker(ManyTensors());
    ASSERT_TRUE(worker.Round(0.5f).ok());
    EXPECT_EQ(worker.shard.counts().frames_on_device, slices);
    EXPECT_THAT(worker.client->job().transports, ElementsAre("cuda"));
    worker.gradient.Set(Values(ManyTensors(), 0.25f));
    fake_cuda::Fail(name, kInvalidValue);
    fake_cuda::SetAnswersBefore(kQuestionsBeforeSleep);  // who waits sleeps
    const absl::Status status = worker.client->Push(worker.gradient.Read());
    fake_cuda::SetAnswersBefore(1);
    fake_cuda::Fail(name, 0);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(worker.client->Commit({}).ok());
    ASSERT_TRUE(worker.client->Pull(2, worker.parameters.Write()).ok());
    ASSERT_TRUE(worker.Round(0.125f).ok());
    EXPECT_EQ(worker.parameters.Get(),
              Expected(ManyTensors(), {0.5f, 0.25f, 0.125f}));
    // In the row's other side: nothing is sent.
    EXPECT_EQ(worker.shard.counts().frames, 3 * slices);
    EXPECT_THAT(worker.client->job().transports, ElementsAre("shm"));
    EXPECT_EQ(worker.shard.counts().frames_on_device, slices);
  }
}

TEST_F(DeviceFailuresTest, ASmallRoundGoesByWayOfTheHostToo) {
  DeviceWorker worker(TwoTensors());
  for (const char* name : {"cuMemcpyAsync", "cuEventSynchronize"}) {
    fake_cuda::Fail(name, kInvalidValue);
  }
  ASSERT_TRUE(worker.Round(0.5f).ok());
  EXPECT_EQ(worker.shard.counts().frames, 2);
  EXPECT_EQ(worker.shard.counts().frames_on_device, 0);
  EXPECT_EQ(worker.parameters.Get(), Expected(TwoTensors(), {0.5f}));
}

// What was named on the device stays there, and is named again where the
// stream breaks, too.
TEST_F(DeviceFailuresTest, CopiesThatFailInTheMidstOfARowLoseNothing) {
  const Manifest manifest{
      {Spec("a", {8}), Spec("b", {1 << 20}), Spec("c", {4})}};
  for (const bool breaks : {false, true}) {
    DeviceWorker worker(manifest);
    worker.gradient.Set(Values(manifest, 0.5f));
    std::vector<TensorView> views = worker.gradient.Read();
    for (size_t t = 0; t < views.size(); ++t) {
      views[t].name = manifest.tensors[t].name;
    }
    const int before = worker.job.frames(0);
    worker.client->StartPush({views[0]});
    worker.job.AwaitFrames(before + 1);
    EXPECT_EQ(worker.shard.counts().frames_on_device, 1);
    if (breaks) {
      worker.job.set_push_fault(0, [before](int count) {
        return count == before + 2
                   ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "broken")
                   : grpc::Status::OK;
      });
    }
    fake_cuda::Fail("cuMemcpyAsync", kInvalidValue);
    worker.client->StartPush({views[1]});
    worker.job.AwaitFrames(before + 2);
    auto round =
        worker.client->StartRound({views[2]}, {}, worker.parameters.Write());
    const absl::Status status = round.Outcome().status();
    fake_cuda::Fail("cuMemcpyAsync", 0);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(worker.parameters.Get(), Expected(manifest, {0.5f}));
    EXPECT_EQ(worker.shard.counts().frames_on_device, 1);
    EXPECT_GE(worker.shard.counts().frames, 3 + (breaks ? 1 : 0));
  }
}

TEST_F(DeviceFailuresTest, WhatCannotBeReadEitherIsTheCallersToHear) {
  DeviceWorker worker(ManyTensors());
  ASSERT_TRUE(worker.Round(0.5f).ok());
  fake_cuda::Fail("cuMemcpyAsync", kInvalidValue);
  fake_cuda::FailHostCopies(kInvalidValue);
  const absl::Status status = worker.client->Push(worker.gradient.Read());
  fake_cuda::Fail("cuMemcpyAsync", 0);
  fake_cuda::FailHostCopies(0);
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("from cuMemcpyDtoHAsync"));
  ASSERT_TRUE(worker.Round(0.25f).ok());
  ASSERT_TRUE(worker.Round(0.125f).ok());
  EXPECT_EQ(worker.parameters.Get(),
            Expected(ManyTensors(), {0.5f, 0.25f, 0.125f}));
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
