// What launchers of kernels/cuda are given in tests: rows and arrays in device
// memory that ends where they end, and arrays of arguments.
#ifndef AGG_TESTS_KERNELS_CUDA_PTX_LAUNCH_DATA_H_
#define AGG_TESTS_KERNELS_CUDA_PTX_LAUNCH_DATA_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/chunk.h"
#include "kernels/cuda/kernel_args.h"
#include "kernels/dtype.h"

namespace agg::ptx {

// How a launch runs.
struct RunCase {
  int target = 90;
  uint32_t seed = 0;
  bool pinned = false;  // arguments; else they are in the parameters
};

// One of a kind for each of the two cards, and one in another order.
std::vector<RunCase> RunCases();
void Use(const RunCase& run);
std::string NameOf(const RunCase& run);

// Device memory, or pinned host memory.
using Memory = std::shared_ptr<char>;
Memory DeviceMemory(int64_t num_bytes);
Memory PinnedMemory(int64_t num_bytes);

template <class T>
struct Array {
  Memory memory;
  T* data = nullptr;
  int64_t size = 0;

  std::vector<T> values() const { return std::vector<T>(data, data + size); }
};

template <class T>
Array<T> ArrayIn(const Memory& memory, const std::vector<T>& values) {
  Array<T> array;
  array.memory = memory;
  array.data = reinterpret_cast<T*>(memory.get());
  array.size = static_cast<int64_t>(values.size());
  std::memcpy(array.data, values.data(), values.size() * sizeof(T));
  return array;
}

template <class T>
Array<T> DeviceArray(const std::vector<T>& values) {
  return ArrayIn(DeviceMemory(static_cast<int64_t>(values.size() * sizeof(T))),
                 values);
}

// Puts arrays where the case says. Outlives the launches.
class ArgumentPlaces {
 public:
  ArgumentPlaces(bool pinned, cuda::InlineArgs* args)
      : pinned_(pinned), args_(args) {}

  template <class T>
  cuda::ArgArray<T> Put(const std::vector<T>& values) {
    const auto num_bytes = static_cast<int32_t>(values.size() * sizeof(T));
    cuda::ArgArray<T> place;
    if (pinned_ || args_->num_bytes + num_bytes > cuda::kInlineBytes) {
      memories_.push_back(PinnedMemory(num_bytes));
      place.pinned = ArrayIn(memories_.back(), values).data;
      return place;
    }
    place.offset = args_->num_bytes;
    std::memcpy(args_->bytes + place.offset, values.data(), num_bytes);
    args_->num_bytes += (num_bytes + 15) / 16 * 16;
    return place;
  }

 private:
  const bool pinned_;
  cuda::InlineArgs* const args_;
  std::vector<Memory> memories_;
};

// Ranges of a layout.
struct Ranges {
  std::vector<cuda::Slot> slots;
  int64_t num_chunks = 0;
  int64_t num_elements = 0;  // of the layout, to the last range's end
};
Ranges RangesOf(const std::vector<int32_t>& sizes);
// Tensors of all the sizes at which loops and loads have their ends.
Ranges TailRanges();
std::vector<cuda::Chunk> ChunksOf(const Ranges& ranges);

// Rows that no kernel may write to, and their values.
class LaunchRows {
 public:
  // The last row is so many times as large as the others.
  LaunchRows(DType dtype, int num_rows, const Ranges& ranges,
             float last_scale = 1.0f);
  ~LaunchRows();
  LaunchRows(const LaunchRows&) = delete;
  LaunchRows& operator=(const LaunchRows&) = delete;

  const std::vector<const void*>& pointers() const { return pointers_; }
  int64_t row_bytes() const { return row_bytes_; }
  int64_t scale_offset() const { return scale_offset_; }
  // Of the chunk.
  std::vector<double> Values(int row, const cuda::Chunk& chunk) const;

 private:
  void Fill(int row, float factor);

  const DType dtype_;
  const int64_t num_elements_;
  int64_t row_bytes_ = 0;
  int64_t scale_offset_ = 0;
  std::vector<Memory> memories_;
  std::vector<const void*> pointers_;
  std::vector<std::vector<double>> values_;
};

}  // namespace agg::ptx

#endif  // AGG_TESTS_KERNELS_CUDA_PTX_LAUNCH_DATA_H_
