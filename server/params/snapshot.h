// An immutable published version, and the pool to which its memory returns
// (ARCHITECTURE.md, decision 12).
#ifndef AGG_SERVER_PARAMS_SNAPSHOT_H_
#define AGG_SERVER_PARAMS_SNAPSHOT_H_

#include <cstdint>
#include <functional>
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

// Immutable once published; readers hold a shared_ptr as long as they need the
// bytes (the transport too). Thread-safe.
class Snapshot {
 public:
  Snapshot(SnapshotBuffers* buffers, DType narrowed_dtype)
      : buffers_(buffers), narrowed_dtype_(narrowed_dtype) {}

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
  // The same, and nobody brings them before a reader wants them: then `ask` is
  // called once, with no lock held.
  void DeferUntilAsked(std::function<void()> ask);
  // Whether a reader has wanted float32 bytes.
  bool asked() const;
  // From here on they cannot be brought any more if nobody has asked. Readers
  // that come later wait for Finish. Returns whether that is so.
  bool Lose() const;
  // Finish with this, if Lose has said so.
  void FinishLost(const absl::Status& status) const;
  void Finish(const absl::Status& status) const;
  bool readable(DType dtype) const;
  // Calls `callback` once, with OK when data(dtype) may be read, else with that
  // error: at once if it is known, later on any thread, and with no lock held.
  using ReadableCallback = std::function<void(const absl::Status&)>;
  void WhenReadable(DType dtype, ReadableCallback callback) const;

  // Calls `callback` once, when the memory is wanted back (at once if it is
  // already): the reader then drops its references soon. Returns an id for
  // RemoveRevokeCallback, after which `callback` is not called any more. But it
  // may still be running then, so it must not refer to what the caller destroys
  // afterwards.
  int64_t AddRevokeCallback(std::function<void()> callback) const;
  void RemoveRevokeCallback(int64_t id) const;
  // Wants the memory back: runs the callbacks, with no lock held.
  void Revoke() const;
  bool revoked() const {
    MutexLock lock(&mutex_);
    return revoked_;
  }

 private:
  struct Entry {
    int64_t id;
    std::function<void()> callback;
  };
  SnapshotBuffers* const buffers_;  // the pool's
  const DType narrowed_dtype_;
  std::shared_ptr<Region> master_head_;
  uint64_t master_generation_ = 0;
  mutable Mutex mutex_;
  mutable bool revoked_ ABSL_GUARDED_BY(mutex_) = false;
  mutable int64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  mutable std::vector<Entry> callbacks_ ABSL_GUARDED_BY(mutex_);
  mutable bool deferred_ ABSL_GUARDED_BY(mutex_) = false;
  mutable bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  mutable bool lost_ ABSL_GUARDED_BY(mutex_) = false;
  mutable std::function<void()> ask_ ABSL_GUARDED_BY(mutex_);  // when asked
  mutable absl::Status finished_ ABSL_GUARDED_BY(mutex_);  // once !deferred_
  mutable std::vector<ReadableCallback> readers_ ABSL_GUARDED_BY(mutex_);
};

// Snapshot memories, each recycled when its last reader lets go. Thread-safe.
// Snapshots may outlive the pool: then each frees its memory when its last
// reader lets go, and what has no reader is freed with the pool.
class SnapshotPool {
 public:
  SnapshotPool(std::vector<SnapshotBuffers> buffers, DType narrowed_dtype);
  ~SnapshotPool();

  // A snapshot to write into. Waits while every memory is in use: if that may
  // last (Available() is false), the caller revokes a version's readers first.
  std::shared_ptr<Snapshot> Acquire();
  // The same; null if every memory is in use for so long.
  std::shared_ptr<Snapshot> AcquireWithin(absl::Duration patience);
  // One memory more.
  void Add(SnapshotBuffers buffers);
  // Whether Acquire would not wait now.
  bool Available() const;

 private:
  struct State;
  // REQUIRES: a memory is free.
  static std::shared_ptr<Snapshot> Take(const std::shared_ptr<State>& state);
  std::shared_ptr<State> state_;
};

}  // namespace agg

#endif  // AGG_SERVER_PARAMS_SNAPSHOT_H_
