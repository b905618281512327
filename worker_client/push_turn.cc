// A source calls back with its lock held, so that it is not asked under ours.
#include "worker_client/push_turn.h"

#include "absl/types/optional.h"

namespace agg {

// The analysis does not see what a bool stands for.
bool PushTurn::Take(CancelSource* cancel) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  bool cancelled = false;  // under mutex_
  absl::optional<CancelSource::Registration> registration;
  if (cancel != nullptr) {
    registration.emplace(cancel, [this, &cancelled] {
      MutexLock lock(&mutex_);
      cancelled = true;
      changed_.NotifyAll();
    });
  }
  MutexLock lock(&mutex_);
  while (taken_ && !cancelled) changed_.Wait(&mutex_);
  if (cancelled) return false;
  taken_ = true;
  return true;
}

void PushTurn::Give() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  MutexLock lock(&mutex_);
  taken_ = false;
  changed_.NotifyAll();
}

PushTurnLock::PushTurnLock(PushTurn* turn) ABSL_NO_THREAD_SAFETY_ANALYSIS
    : turn_(turn) {
  turn_->Take(nullptr);  // always true
}

}  // namespace agg
