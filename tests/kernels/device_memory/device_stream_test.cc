#include "kernels/device_memory/device_stream.h"

#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device_memory/cuda_driver.h"
#include "kernels/device_memory/device_context.h"
#include "tests/kernels/device_memory/fake_cuda.h"

namespace agg {
namespace {

std::shared_ptr<const DeviceContext> ContextOf(int device) {
  auto driver = CudaDriver::Load(kFakeCudaPath);
  EXPECT_TRUE(driver.ok()) << driver.status();
  auto context = DeviceContext::Retain(*driver, device);
  EXPECT_TRUE(context.ok()) << context.status();
  return *std::move(context);
}

class DeviceStreamTest : public testing::Test {
 protected:
  ~DeviceStreamTest() override { fake_cuda::Free(memory_); }

  const std::shared_ptr<const DeviceContext> context_ = ContextOf(0);
  char* const memory_ = fake_cuda::Alloc(100);
};

TEST_F(DeviceStreamTest, CopiesWhenItIsWaitedFor) {
  auto stream = DeviceStream::Make(context_).value();
  auto pinned = PinnedHostMemory::Allocate(context_, 100).value();
  std::memset(pinned->data(), 7, 100);
  ASSERT_TRUE(stream->Copy(memory_, pinned->data(), 100).ok());
  EXPECT_EQ(memory_[99], 0) << "it is asynchronous";
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(memory_[99], 7);
}

TEST_F(DeviceStreamTest, AsksWithoutAWait) {
  auto event = DeviceEvent::Make(context_).value();
  EXPECT_TRUE(event->IsDone().value()) << "it was never recorded";
  fake_cuda::Hang(0, true);
  fake_cuda::Launch(0, [this] { std::memset(memory_, 5, 100); });
  ASSERT_TRUE(event->RecordDefault().ok());
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(event->IsDone().value());
  fake_cuda::Hang(0, false);
  while (!event->IsDone().value()) EXPECT_EQ(memory_[99], 0);
  EXPECT_EQ(memory_[99], 5);
  fake_cuda::Fail("cuEventQuery", 700);
  const auto failed = event->IsDone();
  fake_cuda::Fail("cuEventQuery", 0);
  EXPECT_TRUE(absl::IsInternal(failed.status())) << failed.status();
}

// What is done soon is seen without going to sleep.
TEST_F(DeviceStreamTest, AsksBeforeItSleeps) {
  auto event = DeviceEvent::Make(context_).value();
  const int64_t before = fake_cuda::NumCalls("cuEventSynchronize");
  fake_cuda::Launch(0, [this] { std::memset(memory_, 5, 100); });
  ASSERT_TRUE(event->RecordDefault().ok());
  ASSERT_TRUE(event->Synchronize().ok());
  EXPECT_EQ(memory_[99], 5);
  EXPECT_EQ(fake_cuda::NumCalls("cuEventSynchronize"), before);
  fake_cuda::Fail("cuEventQuery", 700);
  const absl::Status failed = event->Synchronize();
  fake_cuda::Fail("cuEventQuery", 0);
  EXPECT_TRUE(absl::IsInternal(failed)) << failed;
}

TEST_F(DeviceStreamTest, NeitherWaitsForTheDefaultStreamNorHoldsItUp) {
  auto stream = DeviceStream::Make(context_).value();
  auto event = DeviceEvent::Make(context_).value();
  bool done = false;
  fake_cuda::Launch(0, [&done] { done = true; });
  ASSERT_TRUE(event->RecordDefault().ok());
  char host[100] = {};
  ASSERT_TRUE(stream->Copy(host, memory_, 100).ok());
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_FALSE(done);
  ASSERT_TRUE(event->Synchronize().ok());
  EXPECT_TRUE(done);
}

TEST_F(DeviceStreamTest, LeavesTheThreadsContextAsItWas) {
  fake_cuda::SetNumDevices(2);
  {
    const auto other = ContextOf(1);
    const CurrentContext current(*other);
    ASSERT_TRUE(current.status().ok());
    auto stream = DeviceStream::Make(context_).value();
    EXPECT_TRUE(stream->Synchronize().ok());
    EXPECT_EQ(fake_cuda::NumCurrent(), 1);
  }
  EXPECT_EQ(fake_cuda::NumCurrent(), 0);
  fake_cuda::SetNumDevices(1);
}

TEST_F(DeviceStreamTest, NamesTheCallThatFails) {
  auto stream = DeviceStream::Make(context_).value();
  char host[8] = {};
  // Beyond the end of the device's memory.
  EXPECT_EQ(stream->Copy(host, memory_ + 4090, 8),
            absl::InternalError("CUDA driver: CUDA_ERROR_INVALID_VALUE (1) "
                                "from cuMemcpyAsync of 8 bytes"));
  fake_cuda::Fail("cuStreamSynchronize", 1);
  EXPECT_EQ(stream->Synchronize(),
            absl::InternalError("CUDA driver: CUDA_ERROR_INVALID_VALUE (1) "
                                "from cuStreamSynchronize"));
  fake_cuda::Fail("cuStreamSynchronize", 0);
}

TEST_F(DeviceStreamTest, GivesEverythingBack) {
  const int64_t before = fake_cuda::NumLive();
  {
    auto stream = DeviceStream::Make(context_).value();
    auto event = DeviceEvent::Make(context_).value();
    auto pinned = PinnedHostMemory::Allocate(context_, 100).value();
    EXPECT_EQ(fake_cuda::NumLive(), before + 3);
  }
  EXPECT_EQ(fake_cuda::NumLive(), before);
  for (const char* name :
       {"cuStreamCreate", "cuEventCreate", "cuMemAllocHost_v2"}) {
    fake_cuda::Fail(name, 2);
    EXPECT_EQ(DeviceStream::Make(context_).ok(),
              std::string(name) != "cuStreamCreate");
    EXPECT_EQ(DeviceEvent::Make(context_).ok(),
              std::string(name) != "cuEventCreate");
    EXPECT_EQ(PinnedHostMemory::Allocate(context_, 1).ok(),
              std::string(name) != "cuMemAllocHost_v2");
    fake_cuda::Fail(name, 0);
  }
  EXPECT_EQ(fake_cuda::NumLive(), before);
}

using Access = RegisteredMemory::Access;
constexpr int64_t kBytes = 4096;

class RegisteredMemoryTest : public testing::Test {
 protected:
  ~RegisteredMemoryTest() override {
    munmap(host_, kBytes);
    fake_cuda::Free(memory_);
  }

  const std::shared_ptr<const DeviceContext> context_ =
      *DeviceContext::Retain(*CudaDriver::Load(kFakeCudaPath), 0);
  char* const memory_ = fake_cuda::Alloc(kBytes);
  char* const host_ =
      static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
};

// Of plain memory the copy is done when the call returns.
TEST_F(RegisteredMemoryTest, IsCopiedBesideTheHostsWork) {
  auto stream = DeviceStream::Make(context_).value();
  std::memset(memory_, 5, kBytes);
  const int64_t live = fake_cuda::NumLive();
  {
    const auto registered =
        RegisteredMemory::Register(context_, host_, kBytes, Access::kReadWrite);
    ASSERT_TRUE(registered.ok()) << registered.status();
    ASSERT_TRUE(stream->CopyToHost(host_, memory_, kBytes).ok());
    EXPECT_EQ(host_[kBytes - 1], 0);
    ASSERT_TRUE(stream->Synchronize().ok());
    EXPECT_EQ(host_[kBytes - 1], 5);
  }
  EXPECT_EQ(fake_cuda::NumLive(), live);
  EXPECT_EQ(fake_cuda::NumCurrent(), 0);
  std::memset(memory_, 6, kBytes);
  ASSERT_TRUE(stream->CopyToHost(host_, memory_, kBytes).ok());
  EXPECT_EQ(host_[kBytes - 1], 6);
}

TEST_F(RegisteredMemoryTest, MayBeReadOnly) {
  host_[7] = 9;
  ASSERT_EQ(mprotect(host_, kBytes, PROT_READ), 0);
  EXPECT_FALSE(
      RegisteredMemory::Register(context_, host_, kBytes, Access::kReadWrite)
          .ok());
  const auto registered =
      RegisteredMemory::Register(context_, host_, kBytes, Access::kRead);
  ASSERT_TRUE(registered.ok()) << registered.status();
  auto stream = DeviceStream::Make(context_).value();
  ASSERT_TRUE(stream->CopyToDevice(memory_, host_, kBytes).ok());
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(memory_[7], 9);
}

TEST_F(RegisteredMemoryTest, SaysWhatTheDriverSays) {
  fake_cuda::Fail("cuMemHostRegister_v2", 2);
  const auto failed =
      RegisteredMemory::Register(context_, host_, kBytes, Access::kReadWrite);
  fake_cuda::Fail("cuMemHostRegister_v2", 0);
  EXPECT_EQ(failed.status(),
            absl::ResourceExhaustedError(
                "CUDA driver: CUDA_ERROR_OUT_OF_MEMORY (2) from "
                "cuMemHostRegister of 4096 bytes"));
  EXPECT_TRUE(absl::IsInvalidArgument(
      RegisteredMemory::Register(context_, host_, 0, Access::kRead).status()));
}

}  // namespace
}  // namespace agg
