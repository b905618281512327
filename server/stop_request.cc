// A reason is never empty, so that it also says whether there is one.
#include "server/stop_request.h"

namespace agg {

void StopRequest::Ask(const std::string& reason) {
  MutexLock lock(&mutex_);
  if (reason_.empty()) reason_ = reason;
  asked_.NotifyAll();
}

std::string StopRequest::Wait() {
  MutexLock lock(&mutex_);
  while (reason_.empty()) asked_.Wait(&mutex_);
  return reason_;
}

std::string StopRequest::reason() const {
  MutexLock lock(&mutex_);
  return reason_;
}

}  // namespace agg
