// An alarm whose time has come is gRPC's way to post an event.
#include "worker_client/queue_waker.h"

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace agg {

void QueueWaker::Wake() {
  MutexLock lock(&mutex_);
  if (alarm_ != nullptr) return;
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(queue_, absl::ToChronoTime(absl::Now()), this);
}

void QueueWaker::TakeEvent() {
  MutexLock lock(&mutex_);
  alarm_ = nullptr;
}

}  // namespace agg
