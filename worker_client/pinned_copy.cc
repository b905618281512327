#include "worker_client/pinned_copy.h"

#include "absl/status/status.h"

namespace agg {

absl::StatusOr<const char*> PinnedCopy::Take(int device, const void* from,
                                             int64_t num_bytes) {
  auto memory = devices_->TakePinned(device);
  if (!memory.ok()) return memory.status();
  memory_ = *std::move(memory);
  const absl::Status status =
      devices_->CopyToHost(device, memory_->data(), from, num_bytes);
  if (!status.ok()) return status;
  return memory_->data();
}

}  // namespace agg
