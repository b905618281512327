#include "kernels/device_memory/shared_device_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/device_memory/fake_cuda.h"

namespace agg {
namespace {

using testing::HasSubstr;

constexpr int64_t kGranularity = int64_t{2} << 20;
constexpr int64_t kNumBytes = 3000000;

class SharedDeviceMemoryTest : public testing::Test {
 protected:
  SharedDeviceMemoryTest() {
    auto driver = CudaDriver::Load(kFakeCudaPath);
    EXPECT_TRUE(driver.ok()) << driver.status();
    driver_ = *driver;
    fake_cuda::SetNumDevices(2);
    context_ = ContextOf(0);
  }
  ~SharedDeviceMemoryTest() override { fake_cuda::SetNumDevices(1); }

  std::shared_ptr<const DeviceContext> ContextOf(int device) {
    auto context = DeviceContext::Retain(driver_, device);
    EXPECT_TRUE(context.ok()) << context.status();
    return *std::move(context);
  }
  std::unique_ptr<SharedDeviceMemory> Create(
      std::shared_ptr<const DeviceContext> context) {
    auto memory = SharedDeviceMemory::Create(std::move(context), kNumBytes);
    EXPECT_TRUE(memory.ok()) << memory.status();
    return *std::move(memory);
  }
  static int64_t NumDescriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  }

  std::shared_ptr<const CudaDriver> driver_;
  std::shared_ptr<const DeviceContext> context_;
};

TEST_F(SharedDeviceMemoryTest, IsOneMemoryUnderTwoAddresses) {
  const auto memory = Create(context_);
  EXPECT_EQ(memory->num_bytes(), kNumBytes);
  EXPECT_EQ(memory->mapped_bytes(), 2 * kGranularity);
  ASSERT_GE(memory->fd(), 0);
  EXPECT_EQ(fcntl(memory->fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(*driver_->DeviceOf(memory->data()), 0);
  const auto mapped = SharedDeviceMemory::Map(context_, memory->fd(), kNumBytes,
                                              memory->mapped_bytes());
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_NE((*mapped)->data(), memory->data());
  EXPECT_LT((*mapped)->fd(), 0);
  (*mapped)->data()[kNumBytes - 1] = 3;
  EXPECT_EQ(memory->data()[kNumBytes - 1], 3);
}

TEST_F(SharedDeviceMemoryTest, LivesAsLongAsItsLastMapping) {
  auto memory = Create(context_);
  memory->data()[17] = 4;
  const auto mapped = SharedDeviceMemory::Map(context_, memory->fd(), kNumBytes,
                                              memory->mapped_bytes());
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  memory = nullptr;
  EXPECT_EQ((*mapped)->data()[17], 4);
}

TEST_F(SharedDeviceMemoryTest, GivesEverythingBack) {
  const int64_t live = fake_cuda::NumLive();
  const int64_t descriptors = NumDescriptors();
  {
    const auto memory = Create(context_);
    const auto mapped = SharedDeviceMemory::Map(
        context_, memory->fd(), kNumBytes, memory->mapped_bytes());
    EXPECT_TRUE(mapped.ok()) << mapped.status();
    EXPECT_EQ(fake_cuda::NumLive(), live + 2) << "two ranges of addresses";
  }
  EXPECT_EQ(fake_cuda::NumLive(), live);
  EXPECT_EQ(NumDescriptors(), descriptors);
}

TEST_F(SharedDeviceMemoryTest, UndoesWhatAFailedCallLeaves) {
  const auto memory = Create(context_);
  const int64_t live = fake_cuda::NumLive();
  const int64_t descriptors = NumDescriptors();
  const struct {
    const char* call;
    bool creates, maps;  // whether it is called for that
    const char* name;    // in errors
  } cases[] = {
      {"cuCtxPushCurrent_v2", true, true, "cuCtxPushCurrent"},
      {"cuMemGetAllocationGranularity", true, true,
       "cuMemGetAllocationGranularity"},
      {"cuMemCreate", true, false, "cuMemCreate"},
      {"cuMemExportToShareableHandle", true, false,
       "cuMemExportToShareableHandle"},
      {"cuMemImportFromShareableHandle", false, true,
       "cuMemImportFromShareableHandle"},
      {"cuMemAddressReserve", true, true, "cuMemAddressReserve"},
      {"cuMemMap", true, true, "cuMemMap"},
      {"cuMemSetAccess", true, true, "cuMemSetAccess"},
  };
  for (const auto& [call, creates, maps, name] : cases) {
    fake_cuda::Fail(call, 999);
    const absl::Status created =
        SharedDeviceMemory::Create(context_, 1).status();
    const absl::Status mapped =
        SharedDeviceMemory::Map(context_, memory->fd(), kNumBytes,
                                memory->mapped_bytes())
            .status();
    fake_cuda::Fail(call, 0);
    EXPECT_EQ(created.ok(), !creates) << call;
    EXPECT_EQ(mapped.ok(), !maps) << call;
    for (const absl::Status& status : {created, mapped}) {
      if (status.ok()) continue;
      EXPECT_THAT(std::string(status.message()), HasSubstr(name));
    }
  }
  EXPECT_EQ(fake_cuda::NumLive(), live);
  EXPECT_EQ(NumDescriptors(), descriptors);
  EXPECT_EQ(fake_cuda::NumCurrent(), 0);
}

TEST_F(SharedDeviceMemoryTest, RefusesSizesThatDoNotFit) {
  EXPECT_EQ(SharedDeviceMemory::Create(context_, 0).status(),
            absl::InvalidArgumentError(
                "cannot allocate 0 bytes of shared device memory"));
  EXPECT_TRUE(absl::IsResourceExhausted(
      SharedDeviceMemory::Create(context_, INT64_MAX).status()));
  const auto memory = Create(context_);
  const auto map = [&](int64_t num_bytes, int64_t mapped_bytes) {
    return SharedDeviceMemory::Map(context_, memory->fd(), num_bytes,
                                   mapped_bytes)
        .status();
  };
  EXPECT_EQ(map(kNumBytes, kGranularity),
            absl::InvalidArgumentError(
                "cannot map 2097152 bytes of shared device memory for 3000000; "
                "allowed: at least as many, a multiple of 2097152"));
  EXPECT_TRUE(absl::IsInvalidArgument(map(kNumBytes, kNumBytes)));
  EXPECT_TRUE(absl::IsInvalidArgument(map(0, kGranularity)));
  EXPECT_TRUE(absl::IsInvalidArgument(map(-1, kGranularity)));
  EXPECT_TRUE(absl::IsInvalidArgument(map(INT64_MIN, INT64_MIN)));
  // More than there is.
  EXPECT_EQ(map(kNumBytes, 3 * kGranularity),
            absl::InternalError("CUDA driver: CUDA_ERROR_INVALID_VALUE (1) "
                                "from cuMemMap of 6291456 bytes"));
}

TEST_F(SharedDeviceMemoryTest, RefusesDescriptorsOfSomethingElse) {
  const int zeros = open("/dev/zero", O_RDWR | O_CLOEXEC);
  for (const int fd : {-1, zeros}) {
    EXPECT_EQ(SharedDeviceMemory::Map(context_, fd, 1, kGranularity).status(),
              absl::InternalError("CUDA driver: CUDA_ERROR_INVALID_VALUE (1) "
                                  "from cuMemImportFromShareableHandle"));
  }
  close(zeros);
}

TEST_F(SharedDeviceMemoryTest, SaysWhatTheDeviceCannotDo) {
  fake_cuda::SetShares(false);
  EXPECT_TRUE(
      absl::IsUnimplemented(SharedDeviceMemory::Create(context_, 1).status()));
  fake_cuda::SetShares(true);
  fake_cuda::Fail("cuMemCreate", 2);
  EXPECT_EQ(SharedDeviceMemory::Create(context_, 1).status(),
            absl::ResourceExhaustedError(
                "CUDA driver: CUDA_ERROR_OUT_OF_MEMORY (2) from cuMemCreate of "
                "2097152 bytes"));
  fake_cuda::Fail("cuMemCreate", 0);
}

TEST_F(SharedDeviceMemoryTest, IsUsedByAPeerIfItMay) {
  const auto memory = Create(context_);
  const auto peer = ContextOf(1);
  const auto mapped = SharedDeviceMemory::Map(peer, memory->fd(), kNumBytes,
                                              memory->mapped_bytes());
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_EQ(*driver_->DeviceOf((*mapped)->data()), 0) << "where it is";
  fake_cuda::Fail("cuMemSetAccess", 101);
  EXPECT_EQ(SharedDeviceMemory::Map(peer, memory->fd(), kNumBytes,
                                    memory->mapped_bytes())
                .status(),
            absl::InternalError("CUDA driver: CUDA_ERROR_INVALID_DEVICE (101) "
                                "from cuMemSetAccess for device 1"));
  fake_cuda::Fail("cuMemSetAccess", 0);
}

TEST_F(SharedDeviceMemoryTest, RefusesMemoryOfADeviceThatIsNotVisible) {
  const auto memory = Create(ContextOf(1));
  fake_cuda::SetNumDevices(1);
  EXPECT_EQ(SharedDeviceMemory::Map(context_, memory->fd(), kNumBytes,
                                    memory->mapped_bytes())
                .status(),
            absl::InternalError("CUDA driver: CUDA_ERROR_INVALID_DEVICE (101) "
                                "from cuMemImportFromShareableHandle"));
}

}  // namespace
}  // namespace agg
