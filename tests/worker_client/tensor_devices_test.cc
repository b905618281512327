#include "worker_client/tensor_devices.h"

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/device_memory/fake_cuda.h"

namespace agg {
namespace {

using ::testing::ElementsAre;

// First: nothing has loaded the fake driver yet.
TEST(ATensorDevicesTest, WithoutADriverAllIsTheHosts) {
  TensorDevices devices;
  const std::vector<float> values(4);
  EXPECT_FALSE(devices.has_driver());
  EXPECT_THAT(*devices.DevicesOf({TensorView(values)}),
              ElementsAre(TensorDevices::kHost));
  EXPECT_EQ(devices.num_met(), 0);
  // Who loads it later is noticed.
  char* const memory = fake_cuda::Alloc(16);
  const absl::Span<const float> there(reinterpret_cast<float*>(memory), 4);
  EXPECT_TRUE(devices.has_driver());
  EXPECT_THAT(*devices.DevicesOf({TensorView(there)}), ElementsAre(0));
  fake_cuda::Free(memory);
}

TEST(TensorDevicesTest, ViewsAreWhereTheirMemoryIs) {
  fake_cuda::SetNumDevices(2);
  char* const zero = fake_cuda::Alloc(64);
  char* const one = fake_cuda::Alloc(64, 1);
  {
    TensorDevices devices;
    const std::vector<float> values(4);
    const auto view = [](const void* data, int64_t count) {
      TensorView result;
      result.data = data;
      result.num_elements = count;
      return result;
    };
    const TensorPiece piece{0, 4, one};
    TensorView pieces = view(nullptr, 4);
    pieces.pieces = absl::MakeConstSpan(&piece, 1);
    EXPECT_THAT(*devices.DevicesOf({view(one + 16, 4), view(values.data(), 4),
                                    view(zero, 16), view(nullptr, 4),
                                    view(zero, 0), pieces}),
                ElementsAre(1, TensorDevices::kHost, 0, TensorDevices::kHost,
                            TensorDevices::kHost, 1));
    EXPECT_EQ(devices.num_met(), 2);
    EXPECT_TRUE(devices.met(1));
    EXPECT_FALSE(devices.met(2));
    const auto driver = CudaDriver::FindLoaded();
    EXPECT_EQ(devices.MetDeviceWith(*driver->UuidOf(1)).value(), 1);
    EXPECT_TRUE(absl::IsNotFound(devices.MetDeviceWith({}).status()));
  }
  fake_cuda::Free(one);
  fake_cuda::Free(zero);
  fake_cuda::SetNumDevices(1);
}

TEST(TensorDevicesTest, WhereTheyAreIsNotGuessedAfterAnError) {
  TensorDevices devices;
  const std::vector<float> values(4);
  fake_cuda::Fail("cuPointerGetAttribute", 2);
  const auto failed = devices.DevicesOf({TensorView(values)});
  fake_cuda::Fail("cuPointerGetAttribute", 0);
  EXPECT_EQ(failed.status(),
            absl::InternalError("CUDA driver: CUDA_ERROR_OUT_OF_MEMORY (2) "
                                "from cuPointerGetAttribute"));
  EXPECT_EQ(devices.num_met(), 0);
}

TEST(TensorDevicesTest, CopiesAreBehindTheDefaultStream) {
  TensorDevices devices;
  char* const memory = fake_cuda::Alloc(8);
  ASSERT_THAT(*devices.DevicesOf({TensorView(absl::Span<const float>(
                  reinterpret_cast<float*>(memory), 2))}),
              ElementsAre(0));
  fake_cuda::Launch(0, [memory] { memory[3] = 7; });
  char here[8] = {};
  ASSERT_TRUE(devices.Copy(0, here, memory, 8).ok());
  EXPECT_EQ(here[3], 7);
  fake_cuda::Fail("cuMemcpy", 2);
  const absl::Status failed = devices.Copy(0, here, memory, 8);
  fake_cuda::Fail("cuMemcpy", 0);
  EXPECT_EQ(failed, absl::InternalError("CUDA driver: CUDA_ERROR_OUT_OF_MEMORY "
                                        "(2) from cuMemcpy"));
  EXPECT_EQ(fake_cuda::NumCurrent(), 0);
  fake_cuda::Free(memory);
}

TEST(TensorDevicesTest, PinnedMemoryIsKept) {
  const int64_t live = fake_cuda::NumLive();
  char* const memory = fake_cuda::Alloc(8);
  {
    TensorDevices devices;
    ASSERT_TRUE(devices
                    .DevicesOf({TensorView(absl::Span<const float>(
                        reinterpret_cast<float*>(memory), 2))})
                    .ok());
    const int64_t made = fake_cuda::NumCalls("cuMemAllocHost_v2");
    for (int i = 0; i < 3; ++i) {
      PinnedCopy copy(&devices);
      ASSERT_TRUE(copy.Take(0, memory, 8).ok());
    }
    EXPECT_EQ(fake_cuda::NumCalls("cuMemAllocHost_v2"), made + 1);
  }
  fake_cuda::Free(memory);
  EXPECT_EQ(fake_cuda::NumLive(), live);
}

}  // namespace
}  // namespace agg
