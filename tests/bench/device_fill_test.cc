#include "tests/bench/device_fill.h"

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/narrow_float.h"
#include "tests/bench/cuda_must.h"

namespace agg {
namespace {

constexpr int64_t kBlockBytes = int64_t{4} << 20;

// Device memory of the emulated device, which the host can read.
class DeviceFillTest : public testing::Test {
 protected:
  std::vector<char> Filled(DType dtype, int64_t num_bytes, uint32_t seed) {
    const cuda::DeviceMemory memory = Must(cuda::AllocateDevice(num_bytes));
    fill_.Fill(memory.get(), num_bytes, dtype, seed);
    return {memory.get(), memory.get() + num_bytes};
  }

  const cuda::Stream stream_ = Must(cuda::MakeStream());
  DeviceFill fill_{stream_.get()};
};

TEST_F(DeviceFillTest, IsTheSameForASeedAndOfAnyLength) {
  const std::vector<char> whole =
      Filled(DType::kF32, 3 * kBlockBytes + 6000, 7);
  EXPECT_EQ(Filled(DType::kF32, 3 * kBlockBytes + 6000, 7), whole);
  const std::vector<char> part = Filled(DType::kF32, 1000, 7);
  EXPECT_EQ(std::memcmp(part.data(), whole.data(), part.size()), 0);
  // The same 4 MiB again and again.
  EXPECT_EQ(std::memcmp(&whole[kBlockBytes], whole.data(), kBlockBytes), 0);
  EXPECT_EQ(std::memcmp(&whole[3 * kBlockBytes], whole.data(), 6000), 0);
}

TEST_F(DeviceFillTest, RowsDiffer) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const std::vector<char> first = Filled(dtype, 4096, 1);
    for (const uint32_t seed : {0, 2, 3, 511, 1000}) {
      EXPECT_NE(Filled(dtype, 4096, seed), first);
    }
  }
}

TEST_F(DeviceFillTest, NumbersAreAroundOne) {
  const std::vector<char> floats = Filled(DType::kF32, 4096, 3);
  const std::vector<char> halves = Filled(DType::kBF16, 4096, 3);
  for (size_t i = 0; i < 1024; ++i) {
    float value = 0.0f;
    std::memcpy(&value, &floats[4 * i], 4);
    uint16_t bits = 0;
    std::memcpy(&bits, &halves[2 * i], 2);
    for (const float x : {value, FloatOfBf16(bits)}) {
      EXPECT_GE(std::fabs(x), 0.5f);
      EXPECT_LT(std::fabs(x), 2.0f);
    }
  }
}

}  // namespace
}  // namespace agg
