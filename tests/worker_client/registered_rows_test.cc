// Tensors on a device, where rows and versions are in the host's memory alone:
// the driver copies from and to it by itself, where it can.
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/device_memory/fake_cuda.h"
#include "tests/worker_client/client_fixture.h"
#include "tests/worker_client/device_worker.h"
#include "worker_client/agg_client.h"

namespace agg {
namespace {

using ::testing::ElementsAre;

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
  ASSERT_TRUE(worker.Round(0.5f).ok());
  EXPECT_EQ(worker.parameters.Get(), Expected(ManyTensors(), {0.5f}));
  // The row and the version, each as a whole and once.
  EXPECT_EQ(NumRegistered(), registered + 2);
  ASSERT_TRUE(worker.Round(0.25f).ok());
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

}  // namespace
}  // namespace agg
