// Runs calls that may hang, each for a limited time, and a file system made of
// such calls: one of a network that is gone keeps a thread in open, readdir,
// read or close for as long as it likes, and nothing can get it back.
#ifndef AGG_SERVER_BASE_LIMITED_CALLS_H_
#define AGG_SERVER_BASE_LIMITED_CALLS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "server/base/file_system.h"
#include "server/base/status_macros.h"

namespace agg {

// Runs calls on threads that can be left behind, and are kept for the next
// ones. As long as a call has not returned that took too long, others of its
// kind fail at once: no more than one thread of a kind is stuck. Thread-safe.
class LimitedCalls {
 public:
  // That of each kind, of which there is at least one.
  explicit LimitedCalls(std::vector<absl::Duration> limits);
  // Threads with nothing to do end; one that is stuck ends when its call does.
  ~LimitedCalls();
  LimitedCalls(const LimitedCalls&) = delete;
  LimitedCalls& operator=(const LimitedCalls&) = delete;

  // Runs `call`, which owns all that it uses. DEADLINE_EXCEEDED: it may still
  // run, or was not begun; RESOURCE_EXHAUSTED: there is no thread. `what`, as
  // "open /a/b", is named in errors.
  absl::Status Run(size_t kind, const std::string& what,
                   std::function<void()> call);

  // What `call` returns (a Status or a StatusOr), or the error of Run.
  template <typename R>
  R Get(size_t kind, const std::string& what, std::function<R()> call) {
    const auto result = std::make_shared<absl::optional<R>>();
    AGG_RETURN_IF_ERROR(Run(kind, what, [result, call = std::move(call)] {
      result->emplace(call());
    }));
    return *std::move(*result);
  }

 private:
  class State;
  const std::shared_ptr<State> state_;  // the threads', too
};

// Indices of LookLimits(), for small files that are read again and again.
enum LookKind : size_t { kAgain, kAtStart };
// Who comes by when such a file is to be looked at waits for so long at most,
// and goes on with what there was: a call, a handshake, the housekeeping. At
// the start nothing else is there to go on with.
std::vector<absl::Duration> LookLimits();

struct FileLimits {
  // Limits of the calls that recoveries wait for. `look` is for List and Open,
  // `read` for a Read, of at most 1 MiB more than was asked for.
  absl::Duration look = absl::Seconds(10);
  absl::Duration read = absl::Seconds(60);
  // Limit of each call that writes, beside the rounds: a slow disk may take
  // minutes to sync.
  absl::Duration write = absl::Minutes(10);
};

// `files`, each of whose calls ends with DEADLINE_EXCEEDED naming operation and
// path when its limit is over. As long as such a call has not returned others
// of its kind (look, read or write) fail at once, so that no more than one
// thread of each kind is stuck. What it still does then is not seen by anybody.
// Small Reads and Appends are put together. Thread-safe; the files that it has
// opened do not outlive it.
std::unique_ptr<FileSystem> LimitFiles(std::unique_ptr<FileSystem> files,
                                       const FileLimits& limits = {});

}  // namespace agg

#endif  // AGG_SERVER_BASE_LIMITED_CALLS_H_
