// The reader's half of the lock that server/params/shared_buffer.cc describes.
#include "worker_client/version_region.h"

#include <atomic>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace agg {
namespace {

// As proto/region.proto says.
constexpr int64_t kHeadAlignment = 4096;
constexpr int64_t kMaxBytes = int64_t{1} << 46;

int64_t HeadOffset(int64_t num_bytes) {
  return (num_bytes + kHeadAlignment - 1) / kHeadAlignment * kHeadAlignment;
}

}  // namespace

absl::StatusOr<std::unique_ptr<VersionRegion>> VersionRegion::Map(
    const v1::Region& said, const FileDescriptor& fd) {
  if (said.bytes() == 0 || said.bytes() > static_cast<uint64_t>(kMaxBytes)) {
    return absl::InternalError(
        absl::StrCat("the shard's region has ", said.bytes(), " bytes"));
  }
  const auto num_bytes = static_cast<int64_t>(said.bytes());
  absl::StatusOr<std::unique_ptr<SharedMemory>> memory = SharedMemory::Map(
      fd, HeadOffset(num_bytes) + kHeadAlignment, SharedMemory::Others::kRead);
  if (!memory.ok()) return memory.status();
  return absl::WrapUnique(new VersionRegion(num_bytes, *std::move(memory)));
}

const char* VersionRegion::At(uint64_t offset, int64_t num_bytes) const {
  const auto all = static_cast<uint64_t>(num_bytes_);
  const bool inside = offset % alignof(float) == 0 && offset <= all &&
                      static_cast<uint64_t>(num_bytes) <= all - offset;
  return inside ? memory_->data() + offset : nullptr;
}

bool VersionRegion::Holds(uint64_t generation) const {
  // What was read before stays before.
  std::atomic_thread_fence(std::memory_order_acquire);
  const auto* const head = reinterpret_cast<const std::atomic<uint64_t>*>(
      memory_->data() + HeadOffset(num_bytes_));
  return head->load(std::memory_order_relaxed) == generation;
}

}  // namespace agg
