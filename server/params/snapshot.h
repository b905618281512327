// An immutable published version, and the pool to which its memory returns
// (ARCHITECTURE.md, decision 12).
#ifndef AGG_SERVER_PARAMS_SNAPSHOT_H_
#define AGG_SERVER_PARAMS_SNAPSHOT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "kernels/dtype.h"
#include "server/base/mutex.h"
#include "server/params/shared_buffer.h"

namespace agg {

// The memory of one snapshot: float32, and a copy narrowed to the pull dtype
// (null if that is float32).
struct SnapshotBuffers {
  std::unique_ptr<Buffer> f32;
  std::unique_ptr<Buffer> narrowed;
};

// Who reads a version, and what they are told when its memory is wanted.
// Thread-safe.
class SnapshotReaders {
 public:
  struct Reader {
    // Called once when the memory is wanted back. It drops the reader's
    // reference on the snapshot, whatever the other end of a connection does,
    // and ends what brought the version there: an update waits for nobody.
    std::function<void()> revoke;
    // Called at most once, after that (null: not): bytes that the reader has
    // lent (LendBytes) did not come back, and are about to be written over.
    // `freed`: or rather are of no more use, and only take memory.
    std::function<void(bool freed)> overtake = nullptr;
  };

  // Calls `revoke` at once if the memory is wanted back already. Returns an id
  // for Remove, after which neither is called any more. But one may still be
  // running then, so they must not refer to what the caller destroys
  // afterwards.
  int64_t Add(Reader reader);
  void Remove(int64_t id);
  // Calls `revoke`, or `overtake`, of all readers. To be called with no lock
  // held.
  void Revoke();
  void Overtake(bool freed);

  bool revoked() const;
  bool empty() const;

 private:
  mutable Mutex mutex_;
  bool revoked_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<int64_t, Reader> readers_ ABSL_GUARDED_BY(mutex_);
};

// Immutable once published; readers hold a shared_ptr as long as they need the
// bytes, until they are told to let go (SnapshotReaders). Thread-safe.
class Snapshot {
 public:
  // `lease`: holds the memory; null: the snapshot's owner does.
  Snapshot(SnapshotBuffers* buffers, DType narrowed_dtype,
           std::shared_ptr<const void> lease = nullptr)
      : buffers_(buffers),
        narrowed_dtype_(narrowed_dtype),
        lease_(std::move(lease)) {}

  // Bytes in the shard's layout; null for a dtype that is not kept.
  const char* data(DType dtype) const {
    if (dtype == DType::kF32) return buffers_->f32->host();
    if (buffers_->narrowed == nullptr || dtype != narrowed_dtype_) {
      return nullptr;
    }
    return buffers_->narrowed->host();
  }
  SnapshotBuffers* buffers() const { return buffers_; }
  // The shared memory that these bytes are in; null: they are in none. Its
  // generation stays as long as the snapshot does.
  std::shared_ptr<Region> region(DType dtype) const {
    if (data(dtype) == nullptr) return nullptr;
    return SharedBuffer::RegionOf(
        dtype == DType::kF32 ? buffers_->f32.get() : buffers_->narrowed.get());
  }

  // Master weights on a device have these values as long as `head` has this
  // generation (P48). Called once at most, before others have the snapshot.
  void NoteMaster(std::shared_ptr<Region> head) {
    master_generation_ = head->generation();
    master_head_ = std::move(head);
  }
  // What NoteMaster was given, while it holds; null: the values are on the host
  // alone.
  std::shared_ptr<Region> master_head() const {
    const bool holds = master_head_ != nullptr &&
                       master_head_->generation() == master_generation_;
    return holds ? master_head_ : nullptr;
  }
  uint64_t master_generation() const { return master_generation_; }

  // Float32 bytes may come later (Backend::FinishSnapshot): Defer, before
  // anybody reads, says so; Finish, that they are there or, with an error,
  // never will; FailUntilAsked, that those who have asked so far get an error,
  // and the next one calls `ask`, as below.
  void Defer();
  void FailUntilAsked(const absl::Status& status,
                      std::function<void()> ask) const;
  // Does as Defer, but nobody brings the bytes before a reader wants them: then
  // `ask` is called once, with no lock held.
  void DeferUntilAsked(std::function<void()> ask);
  // Whether a reader has wanted float32 bytes.
  bool asked() const;
  // Gives up the float32 bytes if nobody has asked for them: they cannot be
  // brought any more, and readers that come later wait for Finish. Returns
  // whether that is so.
  bool Lose() const;
  // Calls Finish with this status, if Lose has said so.
  void FinishLost(const absl::Status& status) const;
  void Finish(const absl::Status& status) const;
  bool readable(DType dtype) const;
  // Calls `callback` once, with OK when data(dtype) may be read, else with that
  // error: at once if it is known, later on any thread, and with no lock held.
  using ReadableCallback = std::function<void(const absl::Status&)>;
  void WhenReadable(DType dtype, ReadableCallback callback) const;

  const std::shared_ptr<SnapshotReaders>& readers() const { return readers_; }
  // Adds a reader with no more to do than that; as SnapshotReaders.
  int64_t AddRevokeCallback(std::function<void()> callback) const {
    return readers_->Add({std::move(callback)});
  }
  void RemoveRevokeCallback(int64_t id) const { readers_->Remove(id); }
  // Wants the memory back, with no lock held.
  void Revoke() const { readers_->Revoke(); }
  bool revoked() const { return readers_->revoked(); }

 private:
  friend std::shared_ptr<const void> LendBytes(
      const std::shared_ptr<const Snapshot>& snapshot);

  SnapshotBuffers* const buffers_;  // the pool's
  const DType narrowed_dtype_;
  const std::shared_ptr<const void> lease_;
  const std::shared_ptr<SnapshotReaders> readers_ =
      std::make_shared<SnapshotReaders>();
  std::shared_ptr<Region> master_head_;
  uint64_t master_generation_ = 0;
  mutable Mutex mutex_;
  mutable bool deferred_ ABSL_GUARDED_BY(mutex_) = false;
  mutable bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  mutable bool lost_ ABSL_GUARDED_BY(mutex_) = false;
  mutable std::function<void()> ask_ ABSL_GUARDED_BY(mutex_);  // when asked
  mutable absl::Status finished_ ABSL_GUARDED_BY(mutex_);  // once !deferred_
  mutable std::vector<ReadableCallback> waiting_ ABSL_GUARDED_BY(mutex_);
};

// Keeps the bytes for a holder that cannot say when it is done with them, nor
// be made to let go: the transport, which has them until a peer takes them.
// They stay mapped as long as the result is held, but once the snapshot is
// revoked they may become those of a later version. Each slice that is sent has
// a checksum, and what is revoked ends with an error.
std::shared_ptr<const void> LendBytes(
    const std::shared_ptr<const Snapshot>& snapshot);

// Snapshot memories, each recycled when its last reader lets go, and when the
// bytes that were lent come back. Thread-safe.
// Snapshots, and what is lent of them, may outlive the pool: then each frees
// its memory when nobody has it any more, and what has no reader is freed with
// the pool.
class SnapshotPool {
 public:
  SnapshotPool(std::vector<SnapshotBuffers> buffers, DType narrowed_dtype);
  // Overtakes readers that still have bytes.
  ~SnapshotPool();

  // A snapshot to write into; null if every memory is in use for so long.
  std::shared_ptr<Snapshot> AcquireWithin(absl::Duration patience);
  // Takes a snapshot as AcquireWithin does, or else a memory of which nothing
  // but lent bytes is left, from those who have them, the oldest first.
  std::shared_ptr<Snapshot> TakeOverWithin(absl::Duration patience);
  // Adds one more memory.
  void Add(SnapshotBuffers buffers);
  // Whether AcquireWithin would not wait now.
  bool Available() const;
  // Whether there is a memory of which nothing but lent bytes is left.
  bool Lends() const;
  // Snapshots that somebody holds, the oldest first.
  std::vector<std::shared_ptr<const Snapshot>> InUse() const;

 private:
  struct State;
  class Lease;
  std::shared_ptr<Snapshot> Acquire(absl::Duration patience, bool lent_too);
  // Makes `memory` a snapshot.
  static std::shared_ptr<Snapshot> Begin(
      const std::shared_ptr<State>& state,
      std::shared_ptr<SnapshotBuffers> memory);
  const std::shared_ptr<State> state_;
};

}  // namespace agg

#endif  // AGG_SERVER_PARAMS_SNAPSHOT_H_
