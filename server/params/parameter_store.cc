// Keeps two versions that can be found, and weak references to older ones
// that somebody still reads: those are revoked when memory is short.
#include "server/params/parameter_store.h"

#include <utility>

namespace agg {
namespace {

absl::Status AllocateInto(Backend* backend, BufferUse use, int64_t num_bytes,
                          std::unique_ptr<Buffer>* buffer) {
  absl::StatusOr<std::unique_ptr<Buffer>> allocated =
      backend->Allocate(use, num_bytes);
  if (!allocated.ok()) return allocated.status();
  *buffer = *std::move(allocated);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ParameterStore>> ParameterStore::Create(
    Backend* backend, const OptimizerOptions& optimizer, int64_t num_elements,
    DType narrowed) {
  absl::Status status;
  std::vector<SnapshotBuffers> buffers(kNumSnapshots);
  for (SnapshotBuffers& memory : buffers) {
    status = AllocateInto(backend, BufferUse::kSnapshot, num_elements * 4,
                          &memory.f32);
    if (!status.ok()) return status;
    if (narrowed == DType::kF32) continue;
    status =
        AllocateInto(backend, BufferUse::kSnapshot,
                     num_elements * DTypeBytes(narrowed), &memory.narrowed);
    if (!status.ok()) return status;
  }
  std::unique_ptr<ParameterStore> store(
      new ParameterStore(std::move(buffers), narrowed));
  const int num_states = OptimizerStateArrays(optimizer);
  std::unique_ptr<Buffer>* const arrays[] = {&store->master_, &store->state0_,
                                             &store->state1_};
  for (int i = 0; i <= num_states; ++i) {
    status =
        AllocateInto(backend, BufferUse::kState, num_elements * 4, arrays[i]);
    if (!status.ok()) return status;
  }
  return store;
}

std::vector<std::shared_ptr<const Snapshot>>
ParameterStore::RetiredWithReaders() {
  std::vector<std::shared_ptr<const Snapshot>> alive;
  std::vector<std::weak_ptr<const Snapshot>> still_retired;
  for (const std::weak_ptr<const Snapshot>& weak : retired_) {
    std::shared_ptr<const Snapshot> snapshot = weak.lock();
    if (snapshot == nullptr) continue;
    alive.push_back(std::move(snapshot));
    still_retired.push_back(weak);
  }
  retired_ = std::move(still_retired);
  return alive;
}

std::shared_ptr<Snapshot> ParameterStore::NextSnapshot(int* revoked) {
  *revoked = 0;
  if (pool_.Available()) return pool_.Acquire();
  std::shared_ptr<const Snapshot> oldest;
  {
    MutexLock lock(&mutex_);
    std::vector<std::shared_ptr<const Snapshot>> retired = RetiredWithReaders();
    if (retired.empty() && versions_.size() > 1) {
      // No reader is further behind, so it is the version before the current
      // one that holds the memory.
      RetireOldest();
      retired = RetiredWithReaders();
    }
    if (!retired.empty()) oldest = retired.front();
  }
  if (oldest != nullptr) {
    oldest->Revoke();
    ++*revoked;
    oldest = nullptr;  // ours is the last reference, or a reader's is
  }
  return pool_.Acquire();
}

void ParameterStore::Publish(uint64_t version,
                             std::shared_ptr<const Snapshot> snapshot) {
  MutexLock lock(&mutex_);
  versions_.push_back({version, std::move(snapshot)});
  while (versions_.size() > kNumKeptVersions) RetireOldest();
  RetiredWithReaders();  // drops the entries without readers
}

void ParameterStore::RetireOldest() {
  // A skipped round publishes the same bytes under the next number: they are
  // retired with the last of their versions.
  if (versions_.size() < 2 || versions_[0].snapshot != versions_[1].snapshot) {
    retired_.push_back(versions_.front().snapshot);
  }
  versions_.erase(versions_.begin());
}

std::shared_ptr<const Snapshot> ParameterStore::Find(uint64_t version) const {
  MutexLock lock(&mutex_);
  for (const Version& entry : versions_) {
    if (entry.version == version) return entry.snapshot;
  }
  return nullptr;
}

}  // namespace agg
