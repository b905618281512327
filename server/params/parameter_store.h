// A shard's parameters: master weights and optimizer state, and the versions
// that can be pulled.
#ifndef AGG_SERVER_PARAMS_PARAMETER_STORE_H_
#define AGG_SERVER_PARAMS_PARAMETER_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "kernels/dtype.h"
#include "kernels/optimizer_step.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/params/shared_buffer.h"
#include "server/params/snapshot.h"

namespace agg {

// Memories of snapshots: the current version, the one before, and the next.
inline constexpr int kNumSnapshots = 3;
// How long an update leaves bytes of an old version that were lent
// (LendBytes) to those who have them, though their calls were ended: who reads
// at all takes them in that time, and a frozen peer never does. Then it writes
// over them.
inline constexpr absl::Duration kPatience = absl::Milliseconds(100);
// Pause without such a wait after one that was in vain: so readers, however
// many stop to read, cost updates a hundredth of their time.
inline constexpr absl::Duration kRest = absl::Seconds(10);
// How long who holds a version in this process itself, although it was told to
// let go, is waited for: a copy from a device, a frame that is being made. Then
// a memory more than planned is tried, so often and so far apart.
inline constexpr absl::Duration kOwnPatience = absl::Seconds(2);
inline constexpr int kOwnTries = 30;
// Versions that can be pulled: the current one and the one before (P10).
inline constexpr size_t kNumKeptVersions = 2;

// Master weights and state are touched by one thread at a time (the phases of
// a round are serial); versions may be looked up from any thread.
class ParameterStore {
 public:
  // `num_elements`: of the shard's layout, at least 1. `narrowed`: the dtype of
  // the second copy of each snapshot; f32 means none. `backend` outlives it.
  // `patience`: as kPatience. `shared`: versions are in shared memory, where
  // there is some. `clock` says when kRest is over, and outlives the store.
  // `own_patience`: as kOwnPatience. Errors are those of Backend::Allocate.
  static absl::StatusOr<std::unique_ptr<ParameterStore>> Create(
      Backend* backend, const OptimizerOptions& optimizer, int64_t num_elements,
      DType narrowed, absl::Duration patience = kPatience, bool shared = false,
      const Clock* clock = Clock::Real(),
      absl::Duration own_patience = kOwnPatience);

  // The shared memory in which versions of `dtype` are, in no order: empty if
  // they are in none. Thread-safe.
  std::vector<std::shared_ptr<Region>> regions(DType dtype) const;

  Buffer* master() { return master_.get(); }
  // The generation of what master has on a device that other processes map;
  // null: they cannot. Its bytes are none (P48).
  std::shared_ptr<Region> master_head() const { return master_head_; }
  // BeginMaster and EndMaster enclose each write of master: a process that
  // reads it on the device sees that the values are lost, and finds those of
  // `snapshot`, which is not published yet.
  void BeginMaster();
  void EndMaster(Snapshot* snapshot) const;
  // The state arrays of the optimizer; null if it keeps fewer.
  Buffer* state0() { return state0_.get(); }
  Buffer* state1() { return state1_.get(); }
  DType narrowed_dtype() const { return narrowed_; }

  // A snapshot to write the next version into. When none is free, the readers
  // of the oldest version that has readers are revoked (never those of the
  // current one): they let go at once, and what they have lent comes back
  // within `patience`, or is taken over. So this waits for no reader. Who has a
  // snapshot and does not listen to its revocation is this process: it is
  // waited for (kOwnPatience), and then costs memory beside the plan, with an
  // error in the log. RESOURCE_EXHAUSTED says which versions are held and how
  // many bytes were refused, if there is none after kOwnTries: then nothing was
  // changed, and the next call begins anew. *revoked: how many versions were
  // revoked, 0 or 1; set with an error, too.
  absl::StatusOr<std::shared_ptr<Snapshot>> NextSnapshot(int* revoked);

  // `snapshot` can be found as `version` from now on, and the oldest of three
  // versions cannot any more.
  void Publish(uint64_t version, std::shared_ptr<const Snapshot> snapshot);

  // The store is of no more use: all readers are revoked. To be called with no
  // lock held.
  void RevokeAll();

  // The snapshot of `version`, or null.
  std::shared_ptr<const Snapshot> Find(uint64_t version) const;

 private:
  ParameterStore(Backend* backend, int64_t num_elements, DType narrowed,
                 absl::Duration patience, bool shared, const Clock* clock,
                 absl::Duration own_patience,
                 std::vector<SnapshotBuffers> buffers);
  // Makes master_head_, if other processes can map master.
  void ShareMaster();
  // How long lent bytes are waited for now.
  absl::Duration Patience() const;
  // Adds a memory to the pool; an error says how many bytes were refused.
  absl::Status AddMemory();
  // "this process itself holds on to version 3 (told to let go), ..".
  std::string DescribeHolders() ABSL_LOCKS_EXCLUDED(mutex_);

  struct SharedVersion {
    DType dtype;
    std::shared_ptr<Region> region;
  };
  void NoteRegions(const SnapshotBuffers& memory) ABSL_LOCKS_EXCLUDED(mutex_);

  struct Version {
    uint64_t version;
    std::shared_ptr<const Snapshot> snapshot;
  };
  struct Retired {
    uint64_t version;
    std::weak_ptr<const Snapshot> snapshot;
  };
  void RetireOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Versions that cannot be found any more, but have readers; oldest first.
  std::vector<std::shared_ptr<const Snapshot>> RetiredWithReaders()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The oldest one with readers that cannot be found, or can be no longer; null
  // if there is none that was not revoked before.
  std::shared_ptr<const Snapshot> OldestToRevoke();
  std::shared_ptr<const Snapshot> OldestUnfound()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Backend* const backend_;
  const int64_t num_elements_;
  const DType narrowed_;
  const absl::Duration patience_;
  const absl::Duration own_patience_;
  const bool shared_;
  const Clock* const clock_;
  absl::Time rests_until_ = absl::InfinitePast();  // the phases' thread's
  std::unique_ptr<Buffer> master_;
  std::unique_ptr<Buffer> state0_;
  std::unique_ptr<Buffer> state1_;
  std::shared_ptr<Region> master_head_;
  SnapshotPool pool_;  // synchronises itself

  mutable Mutex mutex_;
  std::vector<Version> versions_ ABSL_GUARDED_BY(mutex_);  // ascending
  std::vector<Retired> retired_ ABSL_GUARDED_BY(mutex_);
  std::vector<SharedVersion> regions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_PARAMS_PARAMETER_STORE_H_
