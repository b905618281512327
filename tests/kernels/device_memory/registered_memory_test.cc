#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/device_memory/cuda_driver.h"
#include "kernels/device_memory/device_context.h"
#include "kernels/device_memory/device_stream.h"
#include "tests/kernels/device_memory/fake_cuda.h"

namespace agg {
namespace {

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
