// The lock is not held during a call: the coordinator takes its own lock in it,
// and calls peers, which may report a loss in turn.
#include "server/coordinator/loss_listener.h"

#include <utility>

namespace agg {

void LossListener::Notify(uint64_t epoch, const absl::Status& reason) {
  Call([&] { on_loss_(epoch, reason); });
}

void LossListener::NotifyDraining(uint64_t epoch, int ordinal) {
  Call([&] { on_draining_(epoch, ordinal); });
}

void LossListener::NotifyComplete(uint64_t epoch, int ordinal,
                                  const std::vector<CompleteRow>& rows) {
  Call([&] { on_complete_(epoch, ordinal, rows); });
}

void LossListener::NotifyOffer(uint64_t epoch, int ordinal,
                               std::shared_ptr<const CloseOffer> offer) {
  Call([&] { on_offer_(epoch, ordinal, std::move(offer)); });
}

void LossListener::Call(const std::function<void()>& callback) {
  {
    MutexLock lock(&mutex_);
    if (stopped_) return;
    ++num_calls_;
  }
  callback();
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
