// A stream of the caller's that hangs (a kernel that never ends, a collective
// whose peer is gone): who pushes or pulls can end that, it ends by itself, and
// nothing of it is used.
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/device_memory/fake_cuda.h"
#include "tests/worker_client/client_fixture.h"
#include "tests/worker_client/device_shard.h"
#include "tests/worker_client/device_tensors.h"
#include "tests/worker_client/device_worker.h"
#include "tests/worker_client/fake_job.h"
#include "worker_client/agg_client.h"
#include "worker_client/operation.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

struct Way {
  const char* name;
  bool shares;  // the shard's memory
  bool cuda_rows;
  bool trips;
  DType push_dtype;
};

class HungDeviceTest : public testing::TestWithParam<Way> {
 protected:
  HungDeviceTest() {
    const Way& way = GetParam();
    FakeJob::Options of_job;
    if (way.shares) {
      shard_ = std::make_unique<DeviceShard>(manifest_, way.push_dtype);
      of_job = shard_->Options();
    }
    of_job.takes_trips = way.trips;
    of_job.push_dtype = way.push_dtype;
    job_ = std::make_unique<FakeJob>(manifest_, of_job);
    ConnectAgain(absl::Minutes(10));
    EXPECT_TRUE(client_->SeedOrPull(parameters_.Write()).ok());
  }
  ~HungDeviceTest() override {
    fake_cuda::Hang(0, false);
    fake_cuda::Finish(0);
  }

  void ConnectAgain(absl::Duration transfer_timeout) {
    client_ = nullptr;
    ClientOptions options = OptionsFor(*job_, manifest_);
    options.cuda_rows = GetParam().cuda_rows;
    options.transfer_timeout = transfer_timeout;
    options.error_feedback = false;
    client_ = agg::Connect(options);
    ASSERT_NE(client_, nullptr);
  }

  // The gradient is not there before the device goes on.
  void Hang(float scale) {
    fake_cuda::Hang(0, true);
    gradient_.Set(Values(manifest_, scale));
  }

  // Cancels it when it waits for the device.
  static absl::Status Cancel(Operation operation) {
    const int64_t asked = fake_cuda::NumCalls("cuEventQuery");
    while (fake_cuda::NumCalls("cuEventQuery") == asked && !operation.Done()) {
      std::this_thread::yield();
    }
    EXPECT_FALSE(operation.Done()) << operation.Status();
    operation.Cancel();
    return operation.Wait();
  }

  const Manifest manifest_ = TwoTensors();
  std::unique_ptr<DeviceShard> shard_;
  std::unique_ptr<FakeJob> job_;
  const DeviceTensors parameters_{Values(manifest_, 1)};
  DeviceTensors gradient_{Values(manifest_, 0)};
  std::unique_ptr<AggClient> client_;
  std::vector<std::vector<float>> seen_;
};

TEST_P(HungDeviceTest, ItIsWaitedFor) {
  Hang(0.5f);
  RoundOperation round =
      client_->StartRound(gradient_.Read(), {}, parameters_.Write());
  fake_cuda::Hang(0, false);
  const auto outcome = round.Outcome();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_NE(parameters_.Get(), Values(manifest_, 1));
  if (GetParam().push_dtype == DType::kF32) {
    EXPECT_EQ(parameters_.Get(), Expected(manifest_, {0.5f}));
  }
}

TEST_P(HungDeviceTest, WhatIsUnderWayCanBeCancelled) {
  const int seed = job_->frames(0);
  Hang(0.5f);
  const absl::Status statuses[] = {
      Cancel(client_->StartPush(gradient_.Read())),
      Cancel(client_->StartRound(gradient_.Read(), {}, parameters_.Write())),
      Cancel(client_->StartPull(0, parameters_.Write(), {})),
  };
  for (const absl::Status& status : statuses) {
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
  }
  EXPECT_EQ(job_->frames(0), seed) << "nothing was named or sent";
  // The next gradient is the round's.
  fake_cuda::Hang(0, false);
  gradient_.Set(Values(manifest_, 0.25f));
  const auto next =
      client_->PushPull(gradient_.Read(), {}, parameters_.Write());
  ASSERT_TRUE(next.ok()) << next.status();
  if (GetParam().push_dtype == DType::kF32) {
    EXPECT_EQ(parameters_.Get(), Expected(manifest_, {0.25f}));
  }
}

TEST_P(HungDeviceTest, ItEndsByItself) {
  ConnectAgain(absl::Milliseconds(20));
  Hang(0.5f);
  const absl::Status pushed = client_->Push(gradient_.Read());
  EXPECT_TRUE(absl::IsDeadlineExceeded(pushed)) << pushed;
  EXPECT_THAT(Message(pushed), HasSubstr("Push: the device has not done"));
  const absl::Status pulled = client_->Pull(0, parameters_.Write());
  EXPECT_TRUE(absl::IsDeadlineExceeded(pulled)) << pulled;
  EXPECT_THAT(Message(pulled), HasSubstr("Pull: the device has not done"));
  const absl::Status round =
      client_->PushPull(gradient_.Read(), {}, parameters_.Write()).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(round)) << round;
}

// The memory was the caller's in between.
TEST_P(HungDeviceTest, ARoundThatGoesOnWaitsForWhatCameSince) {
  Hang(0.5f);
  RoundOperation round =
      client_->StartRound(gradient_.Read(), {}, parameters_.Write());
  EXPECT_TRUE(absl::IsCancelled(Cancel(round)));
  fake_cuda::Hang(0, false);
  gradient_.Synchronize();
  Hang(0.5f);  // the same values, made anew
  const auto before = parameters_.Get();
  fake_cuda::Launch(0, [this] { seen_ = parameters_.Get(); });
  const int seed = job_->frames(0);
  EXPECT_TRUE(absl::IsCancelled(Cancel(client_->ResumeRound(round))));
  EXPECT_EQ(job_->frames(0), seed);
  round = client_->ResumeRound(round);
  fake_cuda::Hang(0, false);
  const auto outcome = round.Outcome();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(seen_, before) << "what the caller read";
  if (GetParam().push_dtype == DType::kF32) {
    EXPECT_EQ(parameters_.Get(), Expected(manifest_, {0.5f}));
  }
}

// The device's own error is the caller's to hear, and is no time-out.
TEST_P(HungDeviceTest, AnErrorOfTheDeviceEndsTheWait) {
  Hang(0.5f);
  fake_cuda::Fail("cuEventQuery", 700);
  const absl::Status statuses[] = {
      client_->Push(gradient_.Read()),
      client_->Pull(0, parameters_.Write()),
      client_->PushPull(gradient_.Read(), {}, parameters_.Write()).status(),
  };
  fake_cuda::Fail("cuEventQuery", 0);
  for (const absl::Status& status : statuses) {
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_THAT(Message(status), HasSubstr("cuEventQuery"));
  }
}

TEST(HungSeedTest, ItEndsByItself) {
  FakeJob job(TwoTensors(), {});
  ClientOptions options = OptionsFor(job, TwoTensors());
  options.transfer_timeout = absl::Milliseconds(20);
  const auto client = Connect(options);
  DeviceTensors parameters(Values(TwoTensors(), 1));
  fake_cuda::Hang(0, true);
  parameters.Set(Values(TwoTensors(), 2));
  const absl::Status seeded = client->SeedOrPull(parameters.Write());
  fake_cuda::Hang(0, false);
  EXPECT_TRUE(absl::IsDeadlineExceeded(seeded)) << seeded;
  EXPECT_THAT(Message(seeded), HasSubstr("the device has not done"));
}

INSTANTIATE_TEST_SUITE_P(
    Ways, HungDeviceTest,
    testing::Values(Way{"OnTheDevice", true, true, false, DType::kF32},
                    Way{"InSharedMemory", true, false, false, DType::kF32},
                    Way{"Rounded", true, true, false, DType::kBF16},
                    Way{"OverASocket", false, true, false, DType::kF32},
                    Way{"RoundedOverASocket", false, true, false, DType::kBF16},
                    Way{"InOneTrip", false, true, true, DType::kF32},
                    Way{"InOneTripOnTheDevice", true, true, true, DType::kF32}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace agg
