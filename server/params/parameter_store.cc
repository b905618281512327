// Keeps two versions that can be found, and weak references to older ones
// that somebody still reads: those are revoked when memory is short.
#include "server/params/parameter_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "server/base/log.h"
#include "server/base/shared_memory.h"
#include "server/base/status_macros.h"

namespace agg {
namespace {

absl::Status AllocateInto(Backend* backend, BufferUse use, int64_t num_bytes,
                          std::unique_ptr<Buffer>* buffer) {
  AGG_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> allocated,
                       backend->Allocate(use, num_bytes));
  *buffer = std::move(allocated);
  return absl::OkStatus();
}

absl::StatusOr<SnapshotBuffers> AllocateMemory(Backend* backend,
                                               int64_t num_elements,
                                               DType narrowed, bool shared) {
  SnapshotBuffers memory;
  AGG_ASSIGN_OR_RETURN(memory.f32, AllocateHost(backend, BufferUse::kSnapshot,
                                                num_elements * 4, shared));
  if (narrowed == DType::kF32) return memory;
  AGG_ASSIGN_OR_RETURN(
      memory.narrowed,
      AllocateHost(backend, BufferUse::kSnapshot,
                   num_elements * DTypeBytes(narrowed), shared));
  return memory;
}

}  // namespace

ParameterStore::ParameterStore(Backend* backend, int64_t num_elements,
                               DType narrowed, absl::Duration patience,
                               bool shared, const Clock* clock,
                               absl::Duration own_patience,
                               std::vector<SnapshotBuffers> buffers)
    : backend_(backend),
      num_elements_(num_elements),
      narrowed_(narrowed),
      patience_(patience),
      own_patience_(own_patience),
      shared_(shared),
      clock_(clock),
      pool_({}, narrowed) {
  for (SnapshotBuffers& memory : buffers) {
    NoteRegions(memory);
    pool_.Add(std::move(memory));
  }
}

absl::StatusOr<std::unique_ptr<ParameterStore>> ParameterStore::Create(
    Backend* backend, const OptimizerOptions& optimizer, int64_t num_elements,
    DType narrowed, absl::Duration patience, bool shared, const Clock* clock,
    absl::Duration own_patience) {
  absl::Status status;
  std::vector<SnapshotBuffers> buffers(kNumSnapshots);
  for (SnapshotBuffers& memory : buffers) {
    AGG_ASSIGN_OR_RETURN(
        memory, AllocateMemory(backend, num_elements, narrowed, shared));
  }
  std::unique_ptr<ParameterStore> store(
      new ParameterStore(backend, num_elements, narrowed, patience, shared,
                         clock, own_patience, std::move(buffers)));
  const int num_states = OptimizerStateArrays(optimizer);
  std::unique_ptr<Buffer>* const arrays[] = {&store->master_, &store->state0_,
                                             &store->state1_};
  for (int i = 0; i <= num_states; ++i) {
    status =
        AllocateInto(backend, BufferUse::kState, num_elements * 4, arrays[i]);
    if (!status.ok()) return status;
  }
  if (shared) store->ShareMaster();
  return store;
}

void ParameterStore::ShareMaster() {
  if (master_->device_share() == nullptr) return;
  absl::StatusOr<std::unique_ptr<SharedMemory>> head =
      SharedMemory::Create(Region::MappedBytes(0), SharedMemory::Others::kRead);
  if (head.ok()) {
    master_head_ = std::make_shared<Region>(*std::move(head), 0);
  } else {
    LogWarning(head.status().message(),
               "; workers do not read parameters on the device");
  }
}

void ParameterStore::BeginMaster() {
  if (master_head_ != nullptr) master_head_->BeginGeneration();
}

void ParameterStore::EndMaster(Snapshot* snapshot) const {
  if (master_head_ != nullptr) snapshot->NoteMaster(master_head_);
}

void ParameterStore::NoteRegions(const SnapshotBuffers& memory) {
  MutexLock lock(&mutex_);
  const auto note = [&](DType dtype, const Buffer* buffer)
                        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                          std::shared_ptr<Region> region =
                              SharedBuffer::RegionOf(buffer);
                          if (region != nullptr)
                            regions_.push_back({dtype, std::move(region)});
                        };
  note(DType::kF32, memory.f32.get());
  note(narrowed_, memory.narrowed.get());
}

std::vector<std::shared_ptr<Region>> ParameterStore::regions(
    DType dtype) const {
  std::vector<std::shared_ptr<Region>> regions;
  MutexLock lock(&mutex_);
  for (const SharedVersion& shared : regions_) {
    if (shared.dtype == dtype) regions.push_back(shared.region);
  }
  return regions;
}

std::vector<std::shared_ptr<const Snapshot>>
ParameterStore::RetiredWithReaders() {
  std::vector<std::shared_ptr<const Snapshot>> alive;
  std::vector<Retired> still_retired;
  for (const Retired& retired : retired_) {
    std::shared_ptr<const Snapshot> snapshot = retired.snapshot.lock();
    if (snapshot == nullptr) continue;
    alive.push_back(std::move(snapshot));
    still_retired.push_back(retired);
  }
  retired_ = std::move(still_retired);
  return alive;
}

// A version that no round publishes any more, since its epoch is over, has
// readers, too, if it was sent as it was written (P43).
std::shared_ptr<const Snapshot> ParameterStore::OldestUnfound() {
  for (const std::shared_ptr<const Snapshot>& snapshot : RetiredWithReaders()) {
    if (!snapshot->revoked()) return snapshot;
  }
  for (const std::shared_ptr<const Snapshot>& snapshot : pool_.InUse()) {
    const bool found =
        std::any_of(versions_.begin(), versions_.end(),
                    [&](const auto& it) { return it.snapshot == snapshot; });
    if (!found && !snapshot->revoked() && !snapshot->readers()->empty()) {
      return snapshot;
    }
  }
  return nullptr;
}

std::shared_ptr<const Snapshot> ParameterStore::OldestToRevoke() {
  MutexLock lock(&mutex_);
  std::shared_ptr<const Snapshot> oldest = OldestUnfound();
  if (oldest == nullptr && versions_.size() > 1 && !pool_.Lends()) {
    // No reader is further behind, so it is the version before the current
    // one that holds the memory.
    RetireOldest();
    oldest = OldestUnfound();
  }
  return oldest;
}

absl::Duration ParameterStore::Patience() const {
  return clock_->Now() < rests_until_ ? absl::ZeroDuration() : patience_;
}

absl::StatusOr<std::shared_ptr<Snapshot>> ParameterStore::NextSnapshot(
    int* revoked) {
  *revoked = 0;
  std::shared_ptr<Snapshot> snapshot =
      pool_.AcquireWithin(absl::ZeroDuration());
  if (snapshot != nullptr) return snapshot;
  if (auto oldest = OldestToRevoke(); oldest != nullptr) {
    oldest->Revoke();
    ++*revoked;
  }
  const absl::Duration patience = Patience();
  snapshot = pool_.AcquireWithin(patience);
  if (snapshot != nullptr) return snapshot;
  if (patience > absl::ZeroDuration()) rests_until_ = clock_->Now() + kRest;
  snapshot = pool_.TakeOverWithin(own_patience_);
  absl::Status added;
  for (int tries = 0; snapshot == nullptr && tries < kOwnTries; ++tries) {
    added = AddMemory();
    if (!added.ok() && tries == 0) {
      LogWarningOf("no memory for one more", DescribeHolders(),
                   ", and there is no memory for one more (", added.message(),
                   "): the update waits for either");
    }
    snapshot = pool_.TakeOverWithin(own_patience_);
  }
  if (snapshot != nullptr) return snapshot;
  return absl::ResourceExhaustedError(absl::StrCat(
      "no memory for the next version: ", DescribeHolders(),
      ", and there is no memory for one more: ", added.message(),
      "; free memory on this host or raise this process's limit. If it stays "
      "so, end this shard: it goes on from its second copy or a checkpoint"));
}

std::string ParameterStore::DescribeHolders() {
  std::vector<std::string> held;
  MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<const Snapshot>> others = pool_.InUse();
  const auto name = [&](uint64_t version, const Snapshot* snapshot,
                        absl::string_view what) {
    const auto found = std::find_if(
        others.begin(), others.end(),
        [&](const auto& other) { return other.get() == snapshot; });
    if (found == others.end()) return;  // named already
    others.erase(found);
    held.push_back(absl::StrCat("version ", version, what));
  };
  for (const Version& entry : versions_) {
    name(entry.version, entry.snapshot.get(), " (which can be pulled)");
  }
  for (const Retired& retired : retired_) {
    name(retired.version, retired.snapshot.lock().get(), " (told to let go)");
  }
  if (!others.empty()) {
    held.push_back(absl::StrCat(others.size(), " that no round published"));
  }
  return absl::StrCat(
      "this process itself holds on to ", absl::StrJoin(held, ", "),
      " (a copy from a device or a frame that is being made does not end)");
}

absl::Status ParameterStore::AddMemory() {
  absl::StatusOr<SnapshotBuffers> memory =
      AllocateMemory(backend_, num_elements_, narrowed_, shared_);
  if (!memory.ok()) {
    return absl::Status(
        memory.status().code(),
        absl::StrCat(
            num_elements_ *
                (4 + (narrowed_ == DType::kF32 ? 0 : DTypeBytes(narrowed_))),
            " bytes were asked for: ", memory.status().message()));
  }
  LogErrorOf("one more", DescribeHolders(),
             ": memory for one more than planned is taken");
  NoteRegions(*memory);
  pool_.Add(*std::move(memory));
  return absl::OkStatus();
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
    // And of what was sent as it was written, and never published.
    for (std::shared_ptr<const Snapshot>& snapshot : pool_.InUse()) {
      if (!snapshot->readers()->empty()) {
        snapshots.push_back(std::move(snapshot));
      }
    }
  }
  for (const auto& snapshot : snapshots) snapshot->Revoke();
}

void ParameterStore::Publish(uint64_t version,
                             std::shared_ptr<const Snapshot> snapshot) {
  std::vector<Version> lost;
  {
    MutexLock lock(&mutex_);
    for (const Version& entry : versions_) {
      if (entry.snapshot != snapshot) lost.push_back(entry);
    }
    versions_.push_back({version, std::move(snapshot)});
    while (versions_.size() > kNumKeptVersions) RetireOldest();
    RetiredWithReaders();  // drops the entries without readers
  }
  for (const Version& entry : lost) {
    entry.snapshot->FinishLost(absl::OutOfRangeError(
        absl::StrCat("version ", entry.version,
                     " is gone as float32; current version ", version)));
  }
}

void ParameterStore::RetireOldest() {
  // A skipped round publishes the same bytes under the next number: they are
  // retired with the last of their versions.
  if (versions_.size() < 2 || versions_[0].snapshot != versions_[1].snapshot) {
    retired_.push_back({versions_.front().version, versions_.front().snapshot});
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
