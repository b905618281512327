// Tensors on a device, where no shard shares memory: what comes out is what
// tensors of the host give.
#include "tests/worker_client/device_tensors.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device_memory/cuda_driver.h"
#include "kernels/dtype.h"
#include "tests/kernels/device_memory/fake_cuda.h"
#include "tests/worker_client/client_fixture.h"
#include "tests/worker_client/device_worker.h"
#include "tests/worker_client/fake_job.h"
#include "worker_client/agg_client.h"
#include "worker_client/operation.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Tensors = std::vector<std::vector<float>>;

constexpr int kInvalidValue = 1;

FakeJob::Options WithDTypes(DType push, DType pull) {
  FakeJob::Options options;
  options.num_shards = 2;
  options.push_dtype = push;
  options.pull_dtype = pull;
  return options;
}

// The parameters after some rounds of gradients that rounding changes.
Tensors Train(const FakeJob::Options& of_job, const Manifest& manifest,
              bool on_device) {
  FakeJob job(manifest, of_job);
  const auto client = Connect(OptionsFor(job, manifest));
  if (client == nullptr) return {};
  Tensors parameters = Values(manifest, 1);
  const DeviceTensors there(parameters);
  EXPECT_TRUE(
      client->SeedOrPull(on_device ? there.Write() : Write(&parameters)).ok());
  for (const float scale : {0.5f, 0.25f}) {
    const Tensors gradient = Values(manifest, scale);
    const DeviceTensors of_device(gradient);
    const auto outcome =
        on_device ? client->PushPull(of_device.Read(), {}, there.Write())
                  : client->PushPull(Read(gradient), {}, Write(&parameters));
    EXPECT_TRUE(outcome.ok()) << outcome.status();
  }
  return on_device ? there.Get() : parameters;
}

using Case = std::tuple<DType, DType, bool>;
class DeviceTensorsTest : public testing::TestWithParam<Case> {};

TEST_P(DeviceTensorsTest, GiveTheBytesThatTheHostsGive) {
  const auto [push, pull, in_one_trip] = GetParam();
  const FakeJob::Options options = WithDTypes(push, pull);
  const Manifest manifest =
      in_one_trip ? TwoTensors()
                  : Manifest{{Spec("big", {kMaxSliceElements + 5}),
                              Spec("empty", {3, 0}), Spec("scalar", {}),
                              Spec("maybe", {7}, true), Spec("w", {33, 3})}};
  EXPECT_EQ(Train(options, manifest, /*on_device=*/true),
            Train(options, manifest, /*on_device=*/false));
}

INSTANTIATE_TEST_SUITE_P(
    DTypes, DeviceTensorsTest,
    testing::Values(Case{DType::kF32, DType::kF32, false},
                    Case{DType::kBF16, DType::kBF16, false},
                    Case{DType::kF16, DType::kF32, false},
                    Case{DType::kI8, DType::kBF16, false},
                    Case{DType::kF32, DType::kF32, true},
                    Case{DType::kBF16, DType::kF16, true}));

class OneDeviceTest : public testing::Test {
 protected:
  ~OneDeviceTest() override {
    fake_cuda::FailHostCopies(0);
    fake_cuda::Fail("cuMemAllocHost_v2", 0);
  }

  const Tensors values_ = Values(TwoTensors(), 1);
  FakeJob job_{TwoTensors(), {}};
};

// bf16 that the caller has on the device goes as it is.
TEST_F(OneDeviceTest, SendsThePushTypeAsItIs) {
  FakeJob job(TwoTensors(), WithDTypes(DType::kBF16, DType::kF32));
  const auto client = Connect(OptionsFor(job, TwoTensors()));
  const DeviceTensors parameters(values_);
  ASSERT_TRUE(client->SeedOrPull(parameters.Write()).ok());
  const DeviceTensors gradient(Values(TwoTensors(), 0));
  std::vector<TensorView> views = gradient.Read();
  for (TensorView& view : views) view.dtype = DType::kBF16;
  fake_cuda::Launch(0, [&gradient] {
    auto* const elements = reinterpret_cast<uint16_t*>(gradient.at(0));
    std::fill(elements, elements + 8, 0x3f80);  // 1
  });
  ASSERT_TRUE(client->PushPull(views, {}, parameters.Write()).ok());
  Tensors expected = values_;
  for (float& value : expected[0]) value -= 1;
  EXPECT_EQ(parameters.Get(), expected);
}

// Tensors of two devices and of the host, in one row and one pull.
TEST_F(OneDeviceTest, SomeTensorsMayBeElsewhere) {
  fake_cuda::SetNumDevices(2);
  {
    const Manifest manifest{{Spec("a", {8}), Spec("b", {4}), Spec("c", {5})}};
    FakeJob job(manifest, {});
    const auto client = Connect(OptionsFor(job, manifest));
    const Tensors values = Values(manifest, 1);
    Tensors here = values;
    const DeviceTensors zero(values), one(values, 1);
    const auto views = [&] {
      return std::vector<TensorView>{zero.Read()[0], one.Read()[1],
                                     Read(here)[2]};
    };
    const auto targets = [&] {
      return std::vector<MutableTensorView>{zero.Write()[0], one.Write()[1],
                                            Write(&here)[2]};
    };
    ASSERT_TRUE(client->SeedOrPull(targets()).ok());
    ASSERT_TRUE(client->PushPull(views(), {}, targets()).ok());
    EXPECT_EQ(zero.Get()[0], std::vector<float>(8, 0));
    EXPECT_EQ(one.Get()[1], std::vector<float>(4, 0));
    EXPECT_EQ(here[2], std::vector<float>(5, 0));
  }
  fake_cuda::SetNumDevices(1);
}

TEST_F(OneDeviceTest, ATensorThatIsWaitedForIsOnTheDevice) {
  const auto client = Connect(OptionsFor(job_, TwoTensors()));
  Tensors parameters = values_;
  ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  job_.HoldPullsAfter(1);
  const DeviceTensors there(Values(TwoTensors(), 0));
  PullOperation pull = client->StartPull(0, there.Write(), {});
  ASSERT_TRUE(pull.WaitForTensor("a").ok());
  EXPECT_EQ(there.Get()[0], values_[0]);
  job_.HoldPullsAfter(-1);
  ASSERT_TRUE(pull.Wait().ok());
  EXPECT_EQ(there.Get(), values_);
}

TEST_F(OneDeviceTest, ACopyThatFailsSaysSo) {
  const auto client = Connect(OptionsFor(job_, TwoTensors()));
  const DeviceTensors parameters(values_), gradient(Values(TwoTensors(), 0.5f));
  ASSERT_TRUE(client->SeedOrPull(parameters.Write()).ok());
  fake_cuda::FailHostCopies(kInvalidValue);
  const auto pushed = client->PushPull(gradient.Read(), {}, parameters.Write());
  EXPECT_TRUE(absl::IsInternal(pushed.status())) << pushed.status();
  EXPECT_THAT(Message(pushed.status()), HasSubstr("from cuMemcpyDtoHAsync"));
  const absl::Status pulled = client->Pull(0, parameters.Write());
  EXPECT_TRUE(absl::IsInternal(pulled)) << pulled;
  EXPECT_THAT(Message(pulled), HasSubstr("from cuMemcpyHtoDAsync"));
  fake_cuda::FailHostCopies(0);
  ASSERT_TRUE(client->PushPull(gradient.Read(), {}, parameters.Write()).ok());
  Tensors expected = values_;
  for (size_t t = 0; t < expected.size(); ++t) {
    for (size_t i = 0; i < expected[t].size(); ++i) {
      expected[t][i] -= Values(TwoTensors(), 0.5f)[t][i];
    }
  }
  EXPECT_EQ(parameters.Get(), expected);
}

// A pull needs memory of the host's, which there may be no more of.
TEST_F(OneDeviceTest, PinnedMemoryThatIsNotThereIsAnError) {
  const auto client = Connect(OptionsFor(job_, TwoTensors()));
  const DeviceTensors parameters(values_);
  fake_cuda::Fail("cuMemAllocHost_v2", 2);
  ASSERT_TRUE(client->SeedOrPull(parameters.Write()).ok());  // seeds
  const absl::Status status = client->Pull(0, parameters.Write());
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("cuMemAllocHost"));
}

TEST_F(OneDeviceTest, TensorsOfTheHostCostOneCallOfTheDriver) {
  const auto client = Connect(OptionsFor(job_, TwoTensors()));
  Tensors parameters = values_;
  const DeviceTensors unused(values_);
  const auto calls = [](const char* name) { return fake_cuda::NumCalls(name); };
  const int64_t asked = calls("cuPointerGetAttribute");
  const int64_t copied = fake_cuda::NumHostCopies();
  ASSERT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  ASSERT_TRUE(client->Push(Read(values_)).ok());
  // Targets, the seed of them, and the row: two tensors each.
  EXPECT_EQ(calls("cuPointerGetAttribute"), asked + 6);
  EXPECT_EQ(fake_cuda::NumHostCopies(), copied);
}

// Tensors on a device, where rows and versions are in the host's memory alone:
// the driver copies from and to it by itself, where it can.

class RegisteredRowsTest : public testing::TestWithParam<bool> {
 protected:
  RegisteredRowsTest() {
    if (!GetParam()) fake_cuda::Fail("cuMemHostRegister_v2", 801);
  }
  ~RegisteredRowsTest() override {
    fake_cuda::Fail("cuMemHostRegister_v2", 0);
    EXPECT_EQ(fake_cuda::NumLive(), live_);
  }
  static int64_t NumRegistered() {
    return fake_cuda::NumCalls("cuMemHostRegister_v2");
  }

  const int64_t live_ = fake_cuda::NumLive();
};

TEST_P(RegisteredRowsTest, GiveTheSameRound) {
  const int64_t registered = NumRegistered();
  const int64_t pinned = fake_cuda::NumCalls("cuMemAllocHost_v2");
  DeviceWorker worker(ManyTensors(), DType::kF32, nullptr,
                      /*cuda_rows=*/false);
  worker.shard.PlaceVersions();
  EXPECT_THAT(worker.client->job().transports, ElementsAre("shm"));
  worker.gradient.Set(Values(ManyTensors(), 0.5f));
  ASSERT_TRUE(worker.RoundInCalls(worker.gradient.Read()).ok());
  EXPECT_EQ(worker.parameters.Get(), Expected(ManyTensors(), {0.5f}));
  // The row and the version, each as a whole and once.
  EXPECT_EQ(NumRegistered(), registered + 2);
  worker.gradient.Set(Values(ManyTensors(), 0.25f));
  ASSERT_TRUE(worker.RoundInCalls(worker.gradient.Read()).ok());
  EXPECT_EQ(worker.parameters.Get(), Expected(ManyTensors(), {0.5f, 0.25f}));
  EXPECT_EQ(NumRegistered(), registered + 2);
  // A step on the host is for what the driver does not take.
  EXPECT_EQ(fake_cuda::NumCalls("cuMemAllocHost_v2") > pinned, !GetParam());
}

// Who is overtaken by the next version takes that, and not what it has read.
TEST_P(RegisteredRowsTest, AVersionThatIsReplacedIsPulledAgain) {
  DeviceWorker worker(ManyTensors(), DType::kF32, nullptr,
                      /*cuda_rows=*/false);
  worker.shard.PlaceVersions();
  ASSERT_TRUE(worker.Round(0.5f).ok());
  const int before = worker.shard.counts().pulls;
  worker.shard.OverwriteNext();
  const absl::Status pulled = worker.client->Pull(1, worker.parameters.Write());
  EXPECT_TRUE(absl::IsAborted(pulled)) << pulled;
  ASSERT_TRUE(worker.client->Pull(1, worker.parameters.Write()).ok());
  EXPECT_EQ(worker.shard.counts().pulls, before + 2);
  EXPECT_EQ(worker.parameters.Get(), Expected(ManyTensors(), {0.5f}));
}

// Rows on the device need no other memory, nor do tensors of the host.
TEST_P(RegisteredRowsTest, WhatNoDeviceCopiesIsNotLocked) {
  const int64_t registered = NumRegistered();
  DeviceWorker worker(TwoTensors());
  ASSERT_TRUE(worker.Round(0.5f).ok());
  auto values = Values(TwoTensors(), 0);
  ASSERT_TRUE(worker.client->Pull(1, Write(&values)).ok());
  ASSERT_TRUE(worker.client->Push(Read(values)).ok());
  EXPECT_EQ(NumRegistered(), registered);
}

INSTANTIATE_TEST_SUITE_P(Driver, RegisteredRowsTest, testing::Bool(),
                         [](const auto& info) {
                           return std::string(info.param ? "Takes" : "Refuses");
                         });

// A thread of the caller's captures a CUDA graph while the client's copy rows
// and versions: neither ends the other.

struct Way {
  const char* name;
  bool cuda_rows;
  DType push_dtype;
};

class GraphCaptureTest : public testing::TestWithParam<Way> {
 protected:
  ~GraphCaptureTest() override { fake_cuda::SetCaptures(false); }
};

TEST_P(GraphCaptureTest, RowsAndVersionsGoOn) {
  const Way& way = GetParam();
  DeviceWorker worker(ManyTensors(), way.push_dtype, nullptr, way.cuda_rows);
  const auto before = worker.parameters.Get();
  worker.gradient.Set(Values(ManyTensors(), 0.5f));
  worker.shard.PlaceVersions();
  const int64_t unsafe = fake_cuda::NumUnsafe();
  fake_cuda::SetCaptures(true);
  RoundOperation round = worker.client->StartRound(worker.gradient.Read(), {},
                                                   worker.parameters.Write());
  const auto outcome = round.Outcome();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  worker.client = nullptr;
  fake_cuda::SetCaptures(false);
  EXPECT_EQ(fake_cuda::NumUnsafe(), unsafe);
  EXPECT_NE(worker.parameters.Get(), before);
  if (way.push_dtype == DType::kF32) {
    EXPECT_EQ(worker.parameters.Get(), Expected(ManyTensors(), {0.5f}));
  }
}

// What the test would see.
TEST(FakeCaptureTest, RefusesWhoHasNotSaidThatItIsAnother) {
  const DeviceTensors tensors(Values(TwoTensors(), 1));
  const int64_t unsafe = fake_cuda::NumUnsafe();
  fake_cuda::SetCaptures(true);
  const auto driver = *CudaDriver::Load(kFakeCudaPath);
  EXPECT_EQ(driver->call().cuStreamSynchronize(nullptr), 900);
  fake_cuda::SetCaptures(false);
  EXPECT_EQ(fake_cuda::NumUnsafe(), unsafe + 1);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, GraphCaptureTest,
    testing::Values(Way{"OnTheDevice", true, DType::kF32},
                    Way{"InSharedMemory", false, DType::kF32},
                    Way{"Rounded", false, DType::kBF16}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace agg
