// Tells listeners how far a version is. They are copied and called without the
// lock, since they write to streams.
#include "server/shard/published_version.h"

#include <utility>

namespace agg {

void VersionProgress::Listen(Listener listener) {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    listeners_.push_back(listener);
    status = failure_;
  }
  listener(status);
}

void VersionProgress::Tell() {
  std::vector<Listener> listeners;
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    status = failure_;
    if (published_ || !status.ok()) {
      listeners.swap(listeners_);
    } else {
      listeners = listeners_;
    }
  }
  for (const Listener& listener : listeners) listener(status);
}

void VersionProgress::Advance(size_t num_slices) {
  {
    MutexLock lock(&mutex_);
    num_slices_ = num_slices;
  }
  Tell();
}

void VersionProgress::Publish() {
  {
    MutexLock lock(&mutex_);
    published_ = true;
  }
  Tell();
}

void VersionProgress::Fail(const absl::Status& reason) {
  {
    MutexLock lock(&mutex_);
    if (published_) return;
    failure_ = reason;
  }
  Tell();
}

bool VersionProgress::Allows(size_t end, bool last) const {
  MutexLock lock(&mutex_);
  return failure_.ok() && end <= num_slices_ && (!last || published_);
}

}  // namespace agg
