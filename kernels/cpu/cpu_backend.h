// The compute backend of a host without a device.
#ifndef AGG_KERNELS_CPU_CPU_BACKEND_H_
#define AGG_KERNELS_CPU_CPU_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/thread_pool.h"

namespace agg {

// Host memory for rows, state and snapshots. Zero-filled, 64-byte aligned. From
// 2 MiB on, 2 MiB aligned and advised to use huge pages: the kernels walk up to
// P + 6 arrays at once, more than the first-level TLB maps in 4 KiB pages.
class CpuBuffer : public Buffer {
 public:
  // INVALID_ARGUMENT for a negative size, RESOURCE_EXHAUSTED with the size
  // when there is no such memory. Zero bytes are legal.
  static absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t num_bytes);
  ~CpuBuffer() override;
  CpuBuffer(const CpuBuffer&) = delete;
  CpuBuffer& operator=(const CpuBuffer&) = delete;

  char* host() const override { return data_; }
  int64_t num_bytes() const override { return num_bytes_; }

 private:
  CpuBuffer(char* data, int64_t num_bytes, int64_t mapped_bytes)
      : data_(data), num_bytes_(num_bytes), mapped_bytes_(mapped_bytes) {}

  char* data_;
  int64_t num_bytes_;
  int64_t mapped_bytes_;  // of a private mapping at data_, or 0: from malloc
};

// Memory of somebody else, which outlives it.
class AdoptedBuffer : public Buffer {
 public:
  AdoptedBuffer(char* host, int64_t num_bytes)
      : host_(host), num_bytes_(num_bytes) {}

  char* host() const override { return host_; }
  int64_t num_bytes() const override { return num_bytes_; }

 private:
  char* const host_;
  const int64_t num_bytes_;
};

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
