// A kernel's arrays of arguments: written by the host, copied in one piece.
#ifndef AGG_KERNELS_CUDA_ARGS_BLOCK_H_
#define AGG_KERNELS_CUDA_ARGS_BLOCK_H_

#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/cuda_memory.h"

namespace agg::cuda {

// Bytes that a wave's arguments may take.
inline constexpr int64_t kArgsBytes = int64_t{4} << 20;

// Allocated once. Use: Begin, Append.., Upload, kernels that read it.
class ArgsBlock {
 public:
  static absl::StatusOr<ArgsBlock> Make();

  // Waits until the last upload is out of the pinned memory, and starts anew.
  // The device memory may still be read by kernels on the stream of the last
  // Upload: the next one must be on the same stream.
  absl::Status Begin();

  // Adds an array and returns where it will be on the device, 16-byte aligned.
  // REQUIRES: all arrays together, each rounded up to 16 bytes, fit into
  // kArgsBytes.
  template <class T>
  const T* Append(absl::Span<const T> values) {
    const int64_t at = num_bytes_;
    const int64_t size = static_cast<int64_t>(values.size() * sizeof(T));
    if (size > 0) std::memcpy(host_.get() + at, values.data(), size);
    num_bytes_ += (size + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<const T*>(device_.get() + at);
  }

  // Copies what was appended; later work on `stream` sees it.
  absl::Status Upload(cudaStream_t stream);

 private:
  static constexpr int64_t kAlignment = 16;

  ArgsBlock(PinnedMemory host, DeviceMemory device, Event uploaded)
      : host_(std::move(host)),
        device_(std::move(device)),
        uploaded_(std::move(uploaded)) {}

  PinnedMemory host_;
  DeviceMemory device_;
  Event uploaded_;
  int64_t num_bytes_ = 0;
};

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_ARGS_BLOCK_H_
