// Host memory for rows, state and snapshots.
#ifndef AGG_KERNELS_CPU_CPU_BUFFER_H_
#define AGG_KERNELS_CPU_CPU_BUFFER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace agg {

// Zero-filled, 64-byte aligned. From 2 MiB on, 2 MiB aligned and advised to
// use huge pages: the kernels walk up to P + 6 arrays at once, more than the
// first-level TLB maps in 4 KiB pages.
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

}  // namespace agg

#endif  // AGG_KERNELS_CPU_CPU_BUFFER_H_
