#include "tests/kernels/cuda/ptx/launch_data.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/chunk.h"
#include "kernels/dtype.h"
#include "kernels/row_format.h"
#include "tests/conformance/oracle.h"
#include "tests/kernels/cuda/ptx/runtime.h"

namespace agg::ptx {

std::vector<RunCase> RunCases() {
  return {{80, 0, false}, {90, 0, true}, {80, 1, true}, {90, 2, false}};
}

void Use(const RunCase& run) {
  SetTarget(run.target);
  SetSeed(run.seed);
}

std::string NameOf(const RunCase& run) {
  return absl::StrCat("sm_", run.target, ", seed ", run.seed,
                      run.pinned ? ", pinned arguments" : "");
}

Memory DeviceMemory(int64_t num_bytes) {
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, num_bytes), cudaSuccess);
  return Memory(static_cast<char*>(memory),
                [](char* freed) { cudaFree(freed); });
}

Memory PinnedMemory(int64_t num_bytes) {
  void* memory = nullptr;
  EXPECT_EQ(cudaHostAlloc(&memory, num_bytes, cudaHostAllocDefault),
            cudaSuccess);
  return Memory(static_cast<char*>(memory),
                [](char* freed) { cudaFreeHost(freed); });
}

Ranges RangesOf(const std::vector<int32_t>& sizes) {
  Ranges ranges;
  for (const int32_t size : sizes) {
    cuda::Slot slot;
    // Where ranges of every dtype may begin, and not right behind the last.
    slot.begin = (ranges.num_elements + 2 * kScaleBlockElements - 1) /
                 kScaleBlockElements * kScaleBlockElements;
    slot.num_elements = size;
    slot.first_chunk = static_cast<int32_t>(ranges.num_chunks);
    ranges.slots.push_back(slot);
    ranges.num_chunks += cuda::NumChunks(size);
    ranges.num_elements = slot.begin + size;
  }
  return ranges;
}

Ranges TailRanges() { return RangesOf({1, 3, 4, 127, 129, 255, 1001}); }

std::vector<cuda::Chunk> ChunksOf(const Ranges& ranges) {
  std::vector<cuda::Chunk> chunks;
  for (int64_t i = 0; i < ranges.num_chunks; ++i) {
    chunks.push_back(cuda::ChunkOfSlots(
        ranges.slots.data(), static_cast<int32_t>(ranges.slots.size()), i));
  }
  return chunks;
}

LaunchRows::LaunchRows(DType dtype, int num_rows, const Ranges& ranges,
                       float last_scale)
    : dtype_(dtype), num_elements_(ranges.num_elements) {
  const int64_t alignment = dtype == DType::kI8 ? kScaleBlockElements : 1;
  const int64_t layout_elements =
      (num_elements_ + alignment - 1) / alignment * alignment;
  row_bytes_ = RowBytes(dtype, layout_elements);
  scale_offset_ = dtype == DType::kI8 ? ScaleOffset(row_bytes_, 0) : 0;
  for (int row = 0; row < num_rows; ++row) {
    memories_.push_back(DeviceMemory(row_bytes_));
    pointers_.push_back(memories_.back().get());
    values_.emplace_back(num_elements_);
    Fill(row, row + 1 == num_rows ? last_scale : 1.0f);
    SetReadOnly(pointers_.back(), row_bytes_);
  }
}

LaunchRows::~LaunchRows() { ClearReadOnly(); }

void LaunchRows::Fill(int row, float factor) {
  std::mt19937 random(row);
  std::normal_distribution<float> normal;
  char* const to = memories_[row].get();
  for (int64_t k = 0; k < num_elements_; ++k) {
    const float value = factor * normal(random);
    if (dtype_ == DType::kF32) {
      std::memcpy(to + 4 * k, &value, 4);
      values_[row][k] = value;
    } else if (dtype_ == DType::kI8) {
      const auto byte = static_cast<int8_t>(random());
      float scale;
      char* const scale_at =
          to + scale_offset_ + k / kScaleBlockElements * kScaleBytes;
      if (k % kScaleBlockElements == 0) std::memcpy(scale_at, &value, 4);
      std::memcpy(&scale, scale_at, 4);
      to[k] = static_cast<char>(byte);
      values_[row][k] = static_cast<double>(scale) * byte;
    } else {
      const uint16_t bits = oracle::Narrow(dtype_, value);
      std::memcpy(to + 2 * k, &bits, 2);
      values_[row][k] = oracle::Widen(dtype_, bits);
    }
  }
}

std::vector<double> LaunchRows::Values(int row,
                                       const cuda::Chunk& chunk) const {
  const auto begin = values_[row].begin() + chunk.begin;
  return std::vector<double>(begin, begin + chunk.num_elements);
}

}  // namespace agg::ptx
