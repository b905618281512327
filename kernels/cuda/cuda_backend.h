// The compute backend of an NVIDIA GPU.
#ifndef AGG_KERNELS_CUDA_CUDA_BACKEND_H_
#define AGG_KERNELS_CUDA_CUDA_BACKEND_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/backend_maker.h"
#include "kernels/cuda/cuda_buffer.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/cuda_scratch.h"
#include "kernels/cuda/numa_node.h"
#include "kernels/cuda/row_copies.h"

namespace agg {

// What can be chosen about the CUDA backend.
struct CudaOptions {
  int device = 0;  // of the visible ones
  GramArithmetic gram = GramArithmetic::kByDevice;
  // Multiply many rows with cuBLAS if there is one (kDouble).
  bool use_cublas = true;
  // More than these are many: 1 to 2895, as a tile has room for.
  int64_t many_rows = cuda::kManyRows;
  // Where the system tells what is near the device.
  std::string sysfs = "/sys";
  // cuBLAS's file; empty looks for it (cublas_library.h).
  std::string cublas_path;
  // Make kRow and kState buffers such that other processes can map their device
  // side, where the driver can do that; the description says if it cannot.
  bool share_device = false;
  // The driver's file for that, as CudaDriver::Load.
  std::string driver_path;
};

// Backend on one of the visible devices (CUDA_VISIBLE_DEVICES), of compute
// capability 8.0 or higher, which each call makes the calling thread's device.
// Results have the same bits from run to run on one kind of device; those of
// Update are the CPU backend's. Requests that do not fit together get
// INVALID_ARGUMENT; a failing CUDA call INTERNAL with its name, code and place;
// UNAVAILABLE, with the same, once the device answers nothing but errors.
// Memory: buffers (cuda_buffer.h), scratch (cuda_scratch.h), and 2 bytes per
// parameter at the first Load with a narrowed snapshot. A round allocates
// nothing. Threads: as Backend.
class CudaBackend : public Backend {
 public:
  // UNAVAILABLE "no CUDA device: .." where there is none (or no driver), or one
  // that is too old; INVALID_ARGUMENT where there are only others. The first,
  // and INTERNAL for kernels that do not load, name the driver that is needed.
  static absl::StatusOr<std::unique_ptr<Backend>> Make(
      const CudaOptions& options);
  ~CudaBackend() override;

  absl::string_view name() const override { return "cuda"; }
  std::string description() const override { return description_; }
  MemoryNeeds memory_needs(int64_t num_rows) const override;
  DeviceMemoryUse device_memory_use() const override;
  double gram_products_at_once() const override;
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(BufferUse use,
                                                   int64_t num_bytes) override;
  absl::StatusOr<std::unique_ptr<Buffer>> Adopt(
      BufferUse use, char* host, int64_t num_bytes,
      absl::Status* registered) override;
  // Small neighbouring ranges are copied together.
  void RowLanded(const Buffer& row, DType dtype,
                 const ElementRange& range) override;
  absl::Status AwaitRows() override;  // waits for no kernel
  absl::Status Load(const OptimizerOptions& optimizer, const Buffer& snapshot,
                    Buffer* master, Buffer* state0, Buffer* state1,
                    Buffer* narrowed_snapshot, DType narrowed_dtype) override;
  absl::Status Read(const Buffer& state, absl::Span<float> values) override;
  absl::Status Write(absl::Span<const float> values, Buffer* state) override;
  absl::Status Gram(const GramRequest& request) override;
  absl::Status Update(const UpdateRequest& request) override;
  absl::Status Combine(const UpdateRequest& request) override;
  absl::Status Step(const UpdateRequest& request) override;
  absl::Status FinishSnapshot(const Buffer& snapshot) override;
  absl::Status Norms(const UpdateRequest& request,
                     absl::Span<RangeNorms> norms) override;

 private:
  CudaBackend(int device, std::unique_ptr<const cuda::NumaNode> node,
              std::string description,
              std::unique_ptr<const cuda::DeviceSharing> sharing,
              std::unique_ptr<cuda::CudaScratch> scratch,
              std::unique_ptr<cuda::RowCopies> copies)
      : device_(device),
        node_(std::move(node)),
        description_(std::move(description)),
        sharing_(std::move(sharing)),
        scratch_(std::move(scratch)),
        copies_(std::move(copies)),
        uses_cublas_(scratch_->cublas != nullptr) {}

  // What Allocate and Adopt have made, if it can be used.
  absl::StatusOr<std::unique_ptr<Buffer>> Prepared(
      BufferUse use, absl::StatusOr<std::unique_ptr<cuda::CudaBuffer>> buffer);
  // Called after one more row: starts cuBLAS if there are many now.
  absl::Status PrepareForRows();
  // Makes the compute stream wait for all rows, or the request's ranges.
  absl::Status WaitForAllRows();
  absl::Status WaitForRows(const GramRequest& request);
  absl::Status ComputeGram(const GramRequest& request);
  absl::Status ComputeUpdate(const UpdateRequest& request);
  absl::Status ComputeCombine(const UpdateRequest& request);
  absl::Status ComputeStep(const UpdateRequest& request);
  absl::Status ComputeNorms(const UpdateRequest& request,
                            absl::Span<RangeNorms> norms);
  absl::Status ComputeLoad(const OptimizerOptions& optimizer,
                           const Buffer& snapshot, Buffer* master,
                           Buffer* state0, Buffer* state1,
                           Buffer* narrowed_snapshot, DType narrowed_dtype);
  // Device memory for the narrowed copy of a buffer; null for no buffer.
  absl::StatusOr<uint16_t*> NarrowedMirror(const Buffer* narrowed_snapshot);

  const int device_;
  const std::unique_ptr<const cuda::NumaNode> node_;
  const std::string description_;
  const std::unique_ptr<const cuda::DeviceSharing> sharing_;  // or null
  const std::unique_ptr<cuda::CudaScratch> scratch_;
  const std::unique_ptr<cuda::RowCopies> copies_;
  cuda::DeviceMemory narrowed_;
  int64_t narrowed_bytes_ = 0;
  std::mutex mutex_;  // guards whether there is a scratch_->cublas
  // Whether there is, for memory_needs, which must not wait for mutex_: it is
  // held while cuBLAS starts.
  std::atomic<bool> uses_cublas_;
};

}  // namespace agg

#endif  // AGG_KERNELS_CUDA_CUDA_BACKEND_H_
