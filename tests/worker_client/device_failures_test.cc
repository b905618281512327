// What a worker whose tensors are on a device does when the driver fails: the
// row goes by way of the host, and who pushes hears what cannot be helped.
#include <grpcpp/support/status.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device_memory/device_stream.h"
#include "proto/shard_plan.h"
#include "tests/kernels/device_memory/fake_cuda.h"
#include "tests/worker_client/client_fixture.h"
#include "tests/worker_client/device_shard.h"
#include "tests/worker_client/device_tensors.h"
#include "tests/worker_client/device_worker.h"
#include "tests/worker_client/fake_job.h"
#include "worker_client/agg_client.h"
#include "worker_client/operation.h"
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

// A stream of the caller's that hangs (a kernel that never ends, a collective
// whose peer is gone): who pushes or pulls can end that, it ends by itself, and
// nothing of it is used.

struct Way {
  const char* name;
  bool shares;  // the shard's memory
  bool cuda_rows;
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
    testing::Values(Way{"OnTheDevice", true, true, DType::kF32},
                    Way{"InSharedMemory", true, false, DType::kF32},
                    Way{"Rounded", true, true, DType::kBF16},
                    Way{"OverASocket", false, true, DType::kF32},
                    Way{"RoundedOverASocket", false, true, DType::kBF16}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace agg
