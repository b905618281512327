// The generation is a lock for readers alone (a "seqlock"): the writer counts
// up before it writes, a reader looks again after it has read.
#include "server/params/shared_buffer.h"

#include <atomic>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "server/base/dcheck.h"
#include "server/base/line_limits.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"

// ThreadSanitizer does not follow fences; other processes it cannot follow at
// all.
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif

namespace agg {
namespace {

using Generation = std::atomic<uint64_t>;
static_assert(Generation::is_always_lock_free, "shared between processes");

uint32_t NextNumber() {
  static std::atomic<uint32_t> last{0};
  return ++last;
}

Generation* GenerationOf(const SharedMemory& memory, int64_t num_bytes) {
  return reinterpret_cast<Generation*>(memory.data() +
                                       Region::HeadOffset(num_bytes));
}

// By use (rows, versions) and reason (refused, no memory).
std::atomic<int64_t> num_fallbacks[2][2];
std::atomic<int64_t> num_staged[2];  // by use

void CountFallback(BufferUse use, const absl::Status& reason) {
  ++num_fallbacks[use == BufferUse::kRow ? 0 : 1]
                 [absl::IsResourceExhausted(reason) ? 1 : 0];
}

}  // namespace

Region::Region(std::unique_ptr<SharedMemory> memory, int64_t num_bytes)
    : number_(NextNumber()),
      num_bytes_(num_bytes),
      memory_(std::move(memory)) {}

uint64_t Region::generation() const {
  return GenerationOf(*memory_, num_bytes_)->load(std::memory_order_acquire);
}

void Region::BeginGeneration() {
  GenerationOf(*memory_, num_bytes_)->fetch_add(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
}

absl::StatusOr<std::unique_ptr<SharedBuffer>> SharedBuffer::Allocate(
    BufferUse use, int64_t num_bytes) {
  AGG_ASSIGN_OR_RETURN(std::unique_ptr<SharedMemory> memory,
                       SharedMemory::Create(Region::MappedBytes(num_bytes),
                                            use == BufferUse::kRow
                                                ? SharedMemory::Others::kWrite
                                                : SharedMemory::Others::kRead));
  return absl::WrapUnique(
      new SharedBuffer(std::make_shared<Region>(std::move(memory), num_bytes)));
}

absl::Status SharedBuffer::AdoptBy(Backend* backend, BufferUse use,
                                   absl::Status* populated) {
  AGG_DCHECK(adopted_ == nullptr);
  absl::Status registered;
  AGG_ASSIGN_OR_RETURN(adopted_,
                       backend->Adopt(use, host(), num_bytes(), &registered));
  if (populated != nullptr) *populated = region_->Populate();
  const bool stays = populated == nullptr || populated->ok();
  if (stays && !registered.ok()) {
    ++num_staged[use == BufferUse::kRow ? 0 : 1];
    LogWarningOf(WithoutNumbers(registered.message()), registered.message(),
                 "; ", num_bytes(),
                 " bytes of shared memory go to and from the device by way of "
                 "staging memory, which is slower");
  }
  return absl::OkStatus();
}

std::shared_ptr<Region> SharedBuffer::RegionOf(const Buffer* buffer) {
  const auto* const shared = dynamic_cast<const SharedBuffer*>(buffer);
  return shared == nullptr ? nullptr : shared->region_;
}

absl::StatusOr<std::unique_ptr<Buffer>> AllocateHost(Backend* backend,
                                                     BufferUse use,
                                                     int64_t num_bytes,
                                                     bool shared) {
  if (shared) {
    auto buffer = SharedBuffer::Allocate(use, num_bytes);
    absl::Status populated = buffer.status();
    if (buffer.ok()) {
      AGG_RETURN_IF_ERROR((*buffer)->AdoptBy(backend, use, &populated));
      if (populated.ok()) return {*std::move(buffer)};
      buffer = populated;  // its memory is free before other is taken
    }
    CountFallback(use, populated);
    LogWarningOf(WithoutNumbers(populated.message()), populated.message(), "; ",
                 num_bytes,
                 " bytes are private instead, and workers of this host use "
                 "sockets for them");
  }
  return backend->Allocate(use, num_bytes);
}

SharedFallbacks CountSharedFallbacks() {
  SharedFallbacks fallbacks;
  fallbacks.rows_refused = num_fallbacks[0][0];
  fallbacks.rows_no_memory = num_fallbacks[0][1];
  fallbacks.versions_refused = num_fallbacks[1][0];
  fallbacks.versions_no_memory = num_fallbacks[1][1];
  fallbacks.rows_staged = num_staged[0];
  fallbacks.versions_staged = num_staged[1];
  return fallbacks;
}

}  // namespace agg
