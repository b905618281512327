// A copy on the host of what is in a CUDA device's memory.
#ifndef AGG_WORKER_CLIENT_PINNED_COPY_H_
#define AGG_WORKER_CLIENT_PINNED_COPY_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/device_memory/device_stream.h"
#include "worker_client/tensor_devices.h"

namespace agg {

// In pinned memory, as long as this lives.
class PinnedCopy {
 public:
  // REQUIRES: devices outlives this, and is not null where Take is called.
  explicit PinnedCopy(TensorDevices* devices) : devices_(devices) {}
  ~PinnedCopy() {
    if (memory_ != nullptr) devices_->GiveBack(std::move(memory_));
  }
  PinnedCopy(const PinnedCopy&) = delete;
  PinnedCopy& operator=(const PinnedCopy&) = delete;

  // Copies, once. Arguments and errors as TensorDevices::CopyToHost. REQUIRES:
  // at most kPinnedBytes.
  absl::StatusOr<const char*> Take(int device, const void* from,
                                   int64_t num_bytes);

 private:
  TensorDevices* const devices_;
  std::unique_ptr<PinnedHostMemory> memory_;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_PINNED_COPY_H_
