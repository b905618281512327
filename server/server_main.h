// What agg_server does, for any compute backend.
#ifndef AGG_SERVER_SERVER_MAIN_H_
#define AGG_SERVER_SERVER_MAIN_H_

#include <string>

#include "absl/base/thread_annotations.h"
#include "kernels/backend_maker.h"
#include "server/base/mutex.h"

namespace agg {

// Why the process is to end: a signal, an operator's drain request, a lost
// device. Apart from the signals, of which the second one ends it at once: a
// request of another kind is no signal. Thread-safe.
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

// Runs one shard of a job until a signal or a lost device ends it. Returns the
// exit code: 0 after a drain, 1 for failures at run time, 2 for bad flags, a
// bad configuration or a file that is not for this process, 3 when superseded.
// To be called once, by main, before any thread is started.
int ServerMain(int argc, char** argv, const BackendMaker& make_backend);

}  // namespace agg

#endif  // AGG_SERVER_SERVER_MAIN_H_
