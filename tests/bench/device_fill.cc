#include "tests/bench/device_fill.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/bench/cuda_must.h"

namespace agg {
namespace {

constexpr int64_t kBlockBytes = int64_t{4} << 20;

uint16_t HalfOf(uint32_t bits, DType dtype, bool low_half) {
  if (low_half) return static_cast<uint16_t>(bits);
  if (dtype == DType::kF16) {
    return static_cast<uint16_t>((bits & 0x83ff) | 0x3800);
  }
  return static_cast<uint16_t>((bits & 0x807f) | 0x3f00);
}

}  // namespace

void FillRandom(char* device, int64_t num_bytes, DType dtype, uint32_t seed,
                cudaStream_t stream) {
  std::vector<uint16_t> values(std::min(kBlockBytes, num_bytes) / 2);
  std::mt19937 random(seed);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = HalfOf(static_cast<uint32_t>(random()), dtype,
                       dtype == DType::kF32 && i % 2 == 0);
  }
  const int64_t block = static_cast<int64_t>(values.size()) * 2;
  Must(cudaMemcpyAsync(device, values.data(), block, cudaMemcpyHostToDevice,
                       stream));
  // The rest from what is there: the bus would take a hundred times as long.
  for (int64_t filled = block; filled < num_bytes;) {
    const int64_t more = std::min(filled, num_bytes - filled);
    Must(cudaMemcpyAsync(device + filled, device, more,
                         cudaMemcpyDeviceToDevice, stream));
    filled += more;
  }
  Must(cudaStreamSynchronize(stream));
}

}  // namespace agg
