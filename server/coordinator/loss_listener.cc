// The lock is not held during a call: the coordinator takes its own lock in it,
// and calls peers, which may report a loss in turn.
#include "server/coordinator/loss_listener.h"

namespace agg {

void LossListener::Notify(uint64_t epoch, const absl::Status& reason) {
  {
    MutexLock lock(&mutex_);
    if (stopped_) return;
    ++num_calls_;
  }
  on_loss_(epoch, reason);
  MutexLock lock(&mutex_);
  --num_calls_;
  calls_ended_.NotifyAll();
}

void LossListener::Stop() {
  MutexLock lock(&mutex_);
  stopped_ = true;
  while (num_calls_ > 0) calls_ended_.Wait(&mutex_);
}

}  // namespace agg
