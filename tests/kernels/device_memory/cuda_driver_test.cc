#include "kernels/device_memory/cuda_driver.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/device_memory/fake_cuda.h"

namespace agg {
namespace {

using testing::HasSubstr;

std::shared_ptr<const CudaDriver> Driver() {
  auto driver = CudaDriver::Load(kFakeCudaPath);
  EXPECT_TRUE(driver.ok()) << driver.status();
  return *driver;
}

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

// The first one: nothing has loaded a driver before it.
TEST(CudaDriverTest, FindsWhatIsLoadedAndLoadsNothing) {
  EXPECT_EQ(CudaDriver::FindLoaded(), nullptr);
  const auto loaded = Driver();
  const auto found = CudaDriver::FindLoaded();
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->call().cuMemMap, loaded->call().cuMemMap);
  EXPECT_EQ(CudaDriver::FindLoaded(), found);
}

TEST(CudaDriverTest, SaysThatThereIsNone) {
  const auto driver = CudaDriver::Load("/nowhere/libcuda.so.1");
  EXPECT_EQ(driver.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(driver.status()), HasSubstr("/nowhere/libcuda.so.1"));
}

TEST(CudaDriverTest, NamesAFunctionThatIsMissing) {
  const auto driver = CudaDriver::Load("libm.so.6");
  EXPECT_EQ(driver.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Message(driver.status()),
            "the CUDA driver libm.so.6 has no cuGetErrorName");
}

TEST(CudaDriverTest, SaysWhyItDoesNotStart) {
  Driver();
  fake_cuda::Fail("cuInit", 999);
  const auto driver = CudaDriver::Load(kFakeCudaPath);
  fake_cuda::Fail("cuInit", 0);
  EXPECT_EQ(driver.status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Message(driver.status()),
            "CUDA driver: an error that it has no name for (999) from cuInit");
}

TEST(CudaDriverTest, PutsCodesIntoWords) {
  const auto driver = Driver();
  EXPECT_TRUE(driver->Check(0, "cuMemMap").ok());
  EXPECT_EQ(driver->Check(1, "cuMemMap"),
            absl::InternalError(
                "CUDA driver: CUDA_ERROR_INVALID_VALUE (1) from cuMemMap"));
  EXPECT_TRUE(absl::IsResourceExhausted(driver->Check(2, "cuMemCreate")));
  EXPECT_TRUE(absl::IsUnimplemented(driver->Check(801, "cuMemCreate")));
}

TEST(CudaDriverTest, FindsDevicesByTheirUuids) {
  const auto driver = Driver();
  fake_cuda::SetNumDevices(2);
  EXPECT_EQ(driver->NumDevices().value(), 2);
  const DeviceUuid uuid = driver->UuidOf(1).value();
  EXPECT_EQ(FormatUuid(uuid), "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeb0");
  EXPECT_EQ(driver->DeviceWith(uuid).value(), 1);
  fake_cuda::SetNumDevices(1);
  EXPECT_EQ(driver->DeviceWith(uuid).status(),
            absl::NotFoundError("none of 1 visible CUDA devices is "
                                "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeb0"));
  EXPECT_TRUE(absl::IsInternal(driver->UuidOf(1).status()));
}

TEST(CudaDriverTest, KnowsADevicesMemoryFromTheHosts) {
  const auto driver = Driver();
  std::vector<char> host(4096);
  char* const memory = fake_cuda::Alloc(10000);
  EXPECT_EQ(*driver->DeviceOf(memory), 0);
  EXPECT_EQ(*driver->DeviceOf(memory + 9999), 0);
  EXPECT_EQ(*driver->DeviceOf(host.data()), std::nullopt);
  EXPECT_EQ(*driver->DeviceOf(nullptr), std::nullopt);
  fake_cuda::SetNumDevices(2);
  char* const other = fake_cuda::Alloc(1, 1);
  EXPECT_EQ(*driver->DeviceOf(other), 1);
  fake_cuda::SetNumDevices(1);
  fake_cuda::Free(other);
  fake_cuda::Free(memory);
  EXPECT_EQ(*driver->DeviceOf(memory), std::nullopt);
}

// Who takes a device's memory for the host's reads it, and dies.
TEST(CudaDriverTest, WhoseMemoryItIsAnErrorDoesNotSay) {
  const auto driver = Driver();
  char* const memory = fake_cuda::Alloc(64);
  for (const int code : {2, 4, 700, 999}) {
    fake_cuda::Fail("cuPointerGetAttribute", code);
    const absl::Status status = driver->DeviceOf(memory).status();
    fake_cuda::Fail("cuPointerGetAttribute", 0);
    EXPECT_FALSE(status.ok()) << code;
    EXPECT_THAT(Message(status), HasSubstr("from cuPointerGetAttribute"));
    EXPECT_THAT(Message(status), HasSubstr("(" + std::to_string(code) + ")"));
  }
  // Nobody has asked for the driver, it is the toolkit's stub, or there is no
  // device: nobody has memory of a device's.
  for (const int code : {3, 34, 100}) {
    fake_cuda::Fail("cuPointerGetAttribute", code);
    EXPECT_EQ(*driver->DeviceOf(memory), std::nullopt) << code;
  }
  fake_cuda::Fail("cuPointerGetAttribute", 0);
  EXPECT_EQ(*driver->DeviceOf(memory), 0);
  fake_cuda::Free(memory);
}

TEST(CudaDriverTest, AThreadWithoutAContextAsksInThatOfADevice) {
  const auto driver = Driver();
  char* const memory = fake_cuda::Alloc(64);
  fake_cuda::SetPointersWantContext(true);
  // No device is in use: nobody has memory of one.
  EXPECT_EQ(*driver->DeviceOf(memory), std::nullopt);
  cuda_abi::Context context = nullptr;
  ASSERT_EQ(driver->call().cuDevicePrimaryCtxRetain(&context, 0), 0);
  const int64_t live = fake_cuda::NumLive();
  EXPECT_EQ(*driver->DeviceOf(memory), 0);
  EXPECT_EQ(*driver->DeviceOf(&context), std::nullopt);
  EXPECT_EQ(fake_cuda::NumLive(), live);
  EXPECT_EQ(fake_cuda::NumCurrent(), 0);
  fake_cuda::SetPointersWantContext(false);
  fake_cuda::Fail("cuPointerGetAttribute", 201);
  EXPECT_TRUE(absl::IsInternal(driver->DeviceOf(memory).status()));
  fake_cuda::Fail("cuPointerGetAttribute", 0);
  driver->call().cuDevicePrimaryCtxRelease_v2(0);
  fake_cuda::Free(memory);
}

TEST(CudaDriverTest, SaysWhatADeviceCannotDo) {
  const auto driver = Driver();
  EXPECT_TRUE(driver->CheckShares(0).ok());
  EXPECT_TRUE(absl::IsInternal(driver->CheckShares(1)));
  fake_cuda::SetShares(false);
  EXPECT_EQ(driver->CheckShares(0),
            absl::UnimplementedError("CUDA device 0 does not support virtual "
                                     "memory management"));
  fake_cuda::SetShares(true);
}

TEST(CudaDriverTest, SaysWhoseMemoryADeviceReaches) {
  const auto driver = Driver();
  fake_cuda::SetNumDevices(2);
  const DeviceUuid other = driver->UuidOf(1).value();
  EXPECT_TRUE(driver->CheckReaches(0, other).ok());
  fake_cuda::SetPeers(false);
  EXPECT_EQ(driver->CheckReaches(0, other),
            absl::UnimplementedError("CUDA device 0 cannot access the memory "
                                     "of device 1 (no peer access)"));
  EXPECT_TRUE(driver->CheckReaches(1, other).ok()) << "its own";
  fake_cuda::Fail("cuDeviceCanAccessPeer", 101);
  EXPECT_TRUE(absl::IsInternal(driver->CheckReaches(0, other)));
  fake_cuda::Fail("cuDeviceCanAccessPeer", 0);
  fake_cuda::SetNumDevices(1);
  EXPECT_TRUE(driver->CheckReaches(0, other).ok()) << "not visible";
  fake_cuda::SetPeers(true);
}

TEST(CudaDriverTest, IsFoundByManyThreadsAtOnce) {
  const auto loaded = Driver();
  std::vector<std::thread> threads;
  std::vector<std::shared_ptr<const CudaDriver>> found(8);
  for (auto& place : found) {
    threads.emplace_back([&place] { place = CudaDriver::FindLoaded(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& place : found) EXPECT_EQ(place, found[0]);
}

}  // namespace
}  // namespace agg
