// Keeps two versions that can be found, and weak references to older ones
// that somebody still reads: those are revoked when memory is short.
#include "server/params/parameter_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"

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

absl::StatusOr<SnapshotBuffers> AllocateSnapshot(Backend* backend,
                                                 int64_t num_elements,
                                                 DType narrowed) {
  SnapshotBuffers memory;
  absl::Status status = AllocateInto(backend, BufferUse::kSnapshot,
                                     num_elements * 4, &memory.f32);
  if (status.ok() && narrowed != DType::kF32) {
    status =
        AllocateInto(backend, BufferUse::kSnapshot,
                     num_elements * DTypeBytes(narrowed), &memory.narrowed);
  }
  if (!status.ok()) return status;
  return memory;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ParameterStore>> ParameterStore::Create(
    Backend* backend, const OptimizerOptions& optimizer, int64_t num_elements,
    DType narrowed, absl::Duration patience) {
  absl::Status status;
  std::vector<SnapshotBuffers> buffers(kNumSnapshots);
  for (SnapshotBuffers& memory : buffers) {
    absl::StatusOr<SnapshotBuffers> allocated =
        AllocateSnapshot(backend, num_elements, narrowed);
    if (!allocated.ok()) return allocated.status();
    memory = *std::move(allocated);
  }
  std::unique_ptr<ParameterStore> store(new ParameterStore(
      backend, num_elements, narrowed, patience, std::move(buffers)));
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

std::shared_ptr<const Snapshot> ParameterStore::OldestToRevoke() {
  for (const std::shared_ptr<const Snapshot>& snapshot : RetiredWithReaders()) {
    if (!snapshot->revoked()) return snapshot;
  }
  return nullptr;
}

std::shared_ptr<Snapshot> ParameterStore::NextSnapshot(int* revoked) {
  *revoked = 0;
  if (pool_.Available()) return pool_.Acquire();
  std::shared_ptr<const Snapshot> oldest;
  {
    MutexLock lock(&mutex_);
    oldest = OldestToRevoke();
    if (oldest == nullptr && versions_.size() > 1) {
      // No reader is further behind, so it is the version before the current
      // one that holds the memory.
      RetireOldest();
      oldest = OldestToRevoke();
    }
  }
  if (oldest != nullptr) {
    oldest->Revoke();
    ++*revoked;
    oldest = nullptr;  // ours is the last reference, or a reader's is
  }
  std::shared_ptr<Snapshot> snapshot = pool_.AcquireWithin(patience_);
  if (snapshot != nullptr) return snapshot;
  AddSpare();
  return pool_.Acquire();
}

void ParameterStore::AddSpare() {
  if (spare_added_) return;
  absl::StatusOr<SnapshotBuffers> memory =
      AllocateSnapshot(backend_, num_elements_, narrowed_);
  LogWarning("a puller does not let go of an old version: ",
             memory.ok() ? "the spare memory is used"
                         : absl::StrCat("no memory for another one: ",
                                        memory.status().ToString()));
  if (!memory.ok()) return;
  spare_added_ = true;
  pool_.Add(*std::move(memory));
}

void ParameterStore::RevokeAll() {
  std::vector<std::shared_ptr<const Snapshot>> snapshots;
  {
    MutexLock lock(&mutex_);
    snapshots = RetiredWithReaders();
    for (Version& entry : versions_) {
      snapshots.push_back(std::move(entry.snapshot));
    }
    versions_.clear();
  }
  for (const auto& snapshot : snapshots) snapshot->Revoke();
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
