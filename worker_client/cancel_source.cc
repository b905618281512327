// Calls register their contexts, and the first reason cancels them all.
// Later reasons are dropped: they follow from the first.
#include "worker_client/cancel_source.h"

#include <utility>

#include "absl/time/time.h"
#include "server/base/clock.h"

namespace agg {

CancelSource::Registration::Registration(CancelSource* source,
                                         grpc::ClientContext* context)
    : Registration(source, [context] { context->TryCancel(); }) {}

CancelSource::Registration::Registration(CancelSource* source,
                                         std::function<void()> wake)
    : source_(source), cancel_(std::move(wake)) {
  MutexLock lock(&source_->mutex_);
  source_->registered_.insert(this);
  if (!source_->reason_.ok()) cancel_();
}

CancelSource::Registration::~Registration() {
  MutexLock lock(&source_->mutex_);
  source_->registered_.erase(this);
}

absl::Status CancelSource::status() const {
  MutexLock lock(&mutex_);
  return reason_;
}

bool CancelSource::Cancel(absl::Status reason) {
  MutexLock lock(&mutex_);
  if (!reason_.ok()) return false;
  reason_ = std::move(reason);
  // Under the lock, so that no context is destroyed meanwhile. TryCancel does
  // not wait: it only posts.
  for (const Registration* each : registered_) each->cancel_();
  cancelled_.NotifyAll();
  return true;
}

absl::Status CancelSource::WaitFor(absl::Duration duration) {
  const Clock* const clock = Clock::Real();  // the system's may step back
  const absl::Time until = clock->Now() + duration;
  MutexLock lock(&mutex_);
  for (absl::Time now = clock->Now(); reason_.ok() && now < until;
       now = clock->Now()) {
    cancelled_.WaitFor(&mutex_, until - now);
  }
  return reason_;
}

absl::Status FirstReason(absl::Span<CancelSource* const> sources) {
  for (const CancelSource* source : sources) {
    absl::Status reason = source->status();
    if (!reason.ok()) return reason;
  }
  return absl::OkStatus();
}

}  // namespace agg
