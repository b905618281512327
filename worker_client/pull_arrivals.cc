// Waiters are woken by the last slice of a tensor only.
#include "worker_client/pull_arrivals.h"

#include "absl/time/clock.h"
#include "server/base/dcheck.h"

namespace agg {

PullArrivals::PullArrivals(const ShardRouter* router)
    : router_(router), missing_(router->manifest().tensors.size(), 1) {}

void PullArrivals::Begin(const PullOrigin& origin) {
  MutexLock lock(&mutex_);
  const bool same = !landed_.empty() && origin.version == origin_.version &&
                    origin.past == origin_.past &&
                    (origin_.published || origin.epoch == origin_.epoch);
  const bool published = same && origin_.published;
  origin_ = origin;
  origin_.published |= published;
  if (same) return;
  withdrawn_ |= given_;
  given_ = false;
  landed_.assign(router_->plan().slices.size(), false);
  missing_.clear();
  for (const auto& slices : router_->plan().slices_of_tensor) {
    missing_.push_back(static_cast<int32_t>(slices.size()));
  }
  changed_.NotifyAll();  // a tensor without elements is there
}

void PullArrivals::Land(int32_t slice) {
  MutexLock lock(&mutex_);
  if (landed_[slice]) return;
  landed_[slice] = true;
  if (--missing_[router_->plan().slices[slice].tensor] == 0) {
    changed_.NotifyAll();
  }
}

bool PullArrivals::landed(int32_t slice) const {
  MutexLock lock(&mutex_);
  return landed_[slice];
}

bool PullArrivals::withdrawn() const {
  MutexLock lock(&mutex_);
  return withdrawn_;
}

void PullArrivals::End() {
  MutexLock lock(&mutex_);
  ended_ = true;
  changed_.NotifyAll();
}

bool PullArrivals::Await(int tensor, absl::Time deadline) const {
  MutexLock lock(&mutex_);
  AGG_DCHECK(tensor >= 0 && static_cast<size_t>(tensor) < missing_.size());
  while (missing_[tensor] != 0 && !ended_) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) break;
    changed_.WaitFor(&mutex_, left);
  }
  if (missing_[tensor] != 0) return false;
  given_ |= !router_->plan().slices_of_tensor[tensor].empty();
  return true;
}

}  // namespace agg
