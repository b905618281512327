// Waits for what callers have given their devices to do, within limits. The
// driver's own waits have none.
#ifndef AGG_WORKER_CLIENT_MARK_WAIT_H_
#define AGG_WORKER_CLIENT_MARK_WAIT_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker_client/device_mark.h"

namespace agg {

// How long to sleep between two questions to the driver, as nobody is woken for
// a mark: a 16th of what was waited, so that a short wait ends soon and a long
// one costs little. Thread-compatible.
class MarkPauses {
 public:
  static constexpr absl::Duration kShortest = absl::Microseconds(5);
  static constexpr absl::Duration kLongest = absl::Microseconds(500);

  // Returns the next pause of the wait that began with the first call since
  // Reset.
  absl::Duration Next(absl::Time now);
  void Reset() { begun_ = absl::InfiniteFuture(); }

 private:
  absl::Time begun_ = absl::InfiniteFuture();
};

// Waits until all marks are reached. Returns what `cancelled` says, unless it
// is OK: it is asked before anything else, and again and again;
// DEADLINE_EXCEEDED, for `what` the caller wants; INTERNAL: the driver's
// errors.
absl::Status AwaitMarks(absl::Span<const SharedMark> marks, const char* what,
                        absl::Time deadline,
                        const std::function<absl::Status()>& cancelled);

// Returns the DEADLINE_EXCEEDED of a wait for `what`'s tensors.
absl::Status MarkTimeout(const char* what);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_MARK_WAIT_H_
