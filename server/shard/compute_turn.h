// Who computes on a shard: one phase at a time, and in the gaps between phases
// a thread that computes ahead.
#ifndef AGG_SERVER_SHARD_COMPUTE_TURN_H_
#define AGG_SERVER_SHARD_COMPUTE_TURN_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"

namespace agg {

// A mutex with a gap filler: a thread that starts its next piece of work only
// when nobody has the turn or waits for it. So the coordinator, which waits for
// a phase, waits for one piece at most, however many are ready. Thread-safe.
class ABSL_LOCKABLE ComputeTurn {
 public:
  ComputeTurn() = default;
  // StopFiller, in any case.
  ~ComputeTurn() { StopFiller(); }
  ComputeTurn(const ComputeTurn&) = delete;
  ComputeTurn& operator=(const ComputeTurn&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION();
  // Never waits; whether the caller has the turn now.
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true);
  void Unlock() ABSL_UNLOCK_FUNCTION();

  // Starts the filler's thread, once. It calls `fill` with no lock held, once
  // for one or several calls of WakeFiller; `fill` takes the turn itself, does
  // one piece of work, and calls WakeFiller if there is more.
  void StartFiller(std::function<void()> fill);
  // Returns when `fill` does not run and will not run any more. Idempotent. No
  // lock that `fill` takes may be held.
  void StopFiller();
  // Never waits for a computation, so the caller may hold locks that `fill`
  // takes. Does nothing without a filler.
  void WakeFiller();

 private:
  void RunFiller(const std::function<void()>& fill);

  Mutex turn_;
  Mutex mutex_;  // never held while somebody computes
  CondVar changed_;
  int num_users_ ABSL_GUARDED_BY(mutex_) = 0;  // have the turn or wait for it
  bool awake_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread filler_;
};

// Has the turn for its lifetime.
class ABSL_SCOPED_LOCKABLE TurnLock {
 public:
  explicit TurnLock(ComputeTurn* turn) ABSL_EXCLUSIVE_LOCK_FUNCTION(turn)
      : turn_(turn) {
    turn_->Lock();
  }
  ~TurnLock() ABSL_UNLOCK_FUNCTION() { turn_->Unlock(); }
  TurnLock(const TurnLock&) = delete;
  TurnLock& operator=(const TurnLock&) = delete;

 private:
  ComputeTurn* const turn_;
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_COMPUTE_TURN_H_
