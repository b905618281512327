// Whose turn it is to push: one at a time, and who waits can be cancelled.
#ifndef AGG_WORKER_CLIENT_PUSH_TURN_H_
#define AGG_WORKER_CLIENT_PUSH_TURN_H_

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"
#include "worker_client/cancel_source.h"

namespace agg {

// A lock for as long as bytes travel, which may be for minutes. Thread-safe.
class ABSL_LOCKABLE PushTurn {
 public:
  PushTurn() = default;
  PushTurn(const PushTurn&) = delete;
  PushTurn& operator=(const PushTurn&) = delete;

  // Waits for the turn. False: `cancel`, which may be null, was cancelled
  // first, or before.
  bool Take(CancelSource* cancel) ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true);
  void Give() ABSL_UNLOCK_FUNCTION();

 private:
  Mutex mutex_;
  CondVar changed_;
  bool taken_ ABSL_GUARDED_BY(mutex_) = false;
};

// The turn for a scope.
class ABSL_SCOPED_LOCKABLE PushTurnLock {
 public:
  explicit PushTurnLock(PushTurn* turn) ABSL_EXCLUSIVE_LOCK_FUNCTION(turn);
  ~PushTurnLock() ABSL_UNLOCK_FUNCTION() { turn_->Give(); }
  PushTurnLock(const PushTurnLock&) = delete;
  PushTurnLock& operator=(const PushTurnLock&) = delete;

 private:
  PushTurn* const turn_;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_PUSH_TURN_H_
