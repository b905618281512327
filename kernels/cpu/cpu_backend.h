// The compute backend of a host without a device.
#ifndef AGG_KERNELS_CPU_CPU_BACKEND_H_
#define AGG_KERNELS_CPU_CPU_BACKEND_H_

#include <memory>
#include <string>

#include "kernels/backend.h"
#include "kernels/cpu/thread_pool.h"

namespace agg {

// Backend in SIMD on a fixed set of threads. Results have the same bits for
// every thread count and SIMD target, a NaN's payload in Update excepted.
// Requests whose buffers, ranges and spans do not fit together get
// INVALID_ARGUMENT. Thread-compatible, but RowLanded (which has nothing to
// do here) and Allocate are thread-safe.
class CpuBackend : public Backend {
 public:
  // The calling thread computes, too. num_threads <= 0: one per CPU that this
  // process may run on.
  explicit CpuBackend(int num_threads);

  absl::string_view name() const override { return "cpu"; }
  std::string description() const override;
  int num_threads() const { return pool_.num_threads(); }
  // Blocks' partial results aside, which are small.
  MemoryNeeds memory_needs(int64_t /*num_rows*/) const override { return {}; }
  DeviceMemoryUse device_memory_use() const override { return {}; }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(BufferUse use,
                                                   int64_t num_bytes) override;
  absl::StatusOr<std::unique_ptr<Buffer>> Adopt(
      BufferUse use, char* host, int64_t num_bytes,
      absl::Status* registered) override;
  void RowLanded(const Buffer& row, DType dtype,
                 const ElementRange& range) override;
  absl::Status Load(const OptimizerOptions& optimizer, const Buffer& snapshot,
                    Buffer* master, Buffer* state0, Buffer* state1,
                    Buffer* narrowed_snapshot, DType narrowed_dtype) override;
  absl::Status Read(const Buffer& state, absl::Span<float> values) override;
  absl::Status Write(absl::Span<const float> values, Buffer* state) override;
  absl::Status Gram(const GramRequest& request) override;
  absl::Status Update(const UpdateRequest& request) override;
  absl::Status Combine(const UpdateRequest& request) override;
  absl::Status Step(const UpdateRequest& request) override;
  absl::Status FinishSnapshot(const Buffer& /*snapshot*/) override {
    return absl::OkStatus();  // never deferred
  }
  absl::Status Norms(const UpdateRequest& request,
                     absl::Span<RangeNorms> norms) override;

 private:
  ThreadPool pool_;
};

}  // namespace agg

#endif  // AGG_KERNELS_CPU_CPU_BACKEND_H_
