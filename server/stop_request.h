// Why the process is to end: a signal, an operator's drain request, a lost
// device. Apart from the signals, of which the second one ends it at once: a
// request of another kind is no signal.
#ifndef AGG_SERVER_STOP_REQUEST_H_
#define AGG_SERVER_STOP_REQUEST_H_

#include <string>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"

namespace agg {

// Thread-safe.
class StopRequest {
 public:
  // Never blocks. The first reason counts.
  void Ask(const std::string& reason);
  // Waits for the first Ask; its reason.
  std::string Wait();
  // "" before it.
  std::string reason() const;

 private:
  mutable Mutex mutex_;
  CondVar asked_;
  std::string reason_ ABSL_GUARDED_BY(mutex_);  // "": not asked yet
};

}  // namespace agg

#endif  // AGG_SERVER_STOP_REQUEST_H_
