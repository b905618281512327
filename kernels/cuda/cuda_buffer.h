// Buffers of the CUDA backend.
#ifndef AGG_KERNELS_CUDA_CUDA_BUFFER_H_
#define AGG_KERNELS_CUDA_CUDA_BUFFER_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/row_copies.h"

namespace agg::cuda {

// kRow: pinned host memory and as much on the device. kState: on the device
// alone. kSnapshot: pinned host memory alone, since what is published is the
// master and is copied from there.
class CudaBuffer : public Buffer {
 public:
  // `copies` outlives the buffer. INVALID_ARGUMENT for a negative size,
  // RESOURCE_EXHAUSTED with the sizes.
  static absl::StatusOr<std::unique_ptr<CudaBuffer>> Allocate(
      BufferUse use, int64_t num_bytes, RowCopies* copies);
  ~CudaBuffer() override;
  CudaBuffer(const CudaBuffer&) = delete;
  CudaBuffer& operator=(const CudaBuffer&) = delete;

  char* host() const override { return host_.get(); }
  int64_t num_bytes() const override { return num_bytes_; }
  char* device() const { return device_.get(); }  // null for kSnapshot

 private:
  CudaBuffer(int64_t num_bytes, RowCopies* copies)
      : num_bytes_(num_bytes), copies_(copies) {}

  const int64_t num_bytes_;
  RowCopies* const copies_;
  PinnedMemory host_;
  DeviceMemory device_;
};

// REQUIRES: the buffer is one of this backend's. Null stays null.
inline char* DeviceOf(const Buffer* buffer) {
  return buffer == nullptr ? nullptr
                           : static_cast<const CudaBuffer*>(buffer)->device();
}

// As DeviceOf, of a buffer of float32.
inline float* FloatsOf(const Buffer* buffer) {
  return reinterpret_cast<float*>(DeviceOf(buffer));
}

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_CUDA_BUFFER_H_
