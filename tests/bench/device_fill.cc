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
// Between the beginnings of two seeds: odd pieces of 16 bytes, so that the
// first 256 Ki seeds have beginnings of their own.
constexpr int64_t kStrideBytes = 16 * 40503;

uint16_t HalfOf(uint32_t bits, DType dtype, bool low_half) {
  if (low_half) return static_cast<uint16_t>(bits);
  if (dtype == DType::kF16) {
    return static_cast<uint16_t>((bits & 0x83ff) | 0x3800);
  }
  return static_cast<uint16_t>((bits & 0x807f) | 0x3f00);
}

void Copy(char* to, const char* from, int64_t num_bytes, cudaMemcpyKind kind,
          cudaStream_t stream) {
  if (num_bytes <= 0) return;
  Must(cudaMemcpyAsync(to, from, static_cast<size_t>(num_bytes), kind, stream));
}

}  // namespace

const char* DeviceFill::BlockOf(DType dtype) {
  cuda::DeviceMemory& block = blocks_[dtype];
  if (block != nullptr) return block.get();
  block = Must(cuda::AllocateDevice(kBlockBytes));
  std::vector<uint16_t> values(kBlockBytes / 2);
  std::mt19937 random(static_cast<uint32_t>(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = HalfOf(static_cast<uint32_t>(random()), dtype,
                       dtype == DType::kF32 && i % 2 == 0);
  }
  Copy(block.get(), reinterpret_cast<const char*>(values.data()), kBlockBytes,
       cudaMemcpyHostToDevice, stream_);
  Must(cudaStreamSynchronize(stream_));
  return block.get();
}

void DeviceFill::Fill(char* device, int64_t num_bytes, DType dtype,
                      uint32_t seed) {
  const char* const block = BlockOf(dtype);
  constexpr cudaMemcpyKind kKind = cudaMemcpyDeviceToDevice;
  const int64_t begin = seed * kStrideBytes % kBlockBytes;
  const int64_t first = std::min(kBlockBytes - begin, num_bytes);
  const int64_t second = std::min(begin, num_bytes - first);
  Copy(device, block + begin, first, kKind, stream_);
  Copy(device + first, block, second, kKind, stream_);
  // The rest from what is there.
  for (int64_t filled = first + second; filled < num_bytes;) {
    const int64_t more = std::min(filled, num_bytes - filled);
    Copy(device + filled, device, more, kKind, stream_);
    filled += more;
  }
  Must(cudaStreamSynchronize(stream_));
}

}  // namespace agg
