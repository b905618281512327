// When a failed transfer is tried again, and for how long a job that has lost a
// process is waited for. Pure, and apart from the streams: the time is an
// argument.
#ifndef AGG_WORKER_CLIENT_RETRY_H_
#define AGG_WORKER_CLIENT_RETRY_H_

#include <grpcpp/support/status.h>

#include "absl/time/time.h"
#include "absl/types/optional.h"

namespace agg {

// The policy for one call at one shard. A lost connection is tried again, with
// growing pauses, until `window` has passed since it was lost, also where
// nobody listens: a server that is just starting looks like that. A new
// connection that has worked for long enough ends the outage. The next loss has
// a window of its own then, so that a call may wait for hours and outlive any
// number of losses. Damaged bytes (DATA_LOSS) are retried kMaxDamaged times.
// Other failures are not retried. Thread-compatible.
class RetryPolicy {
 public:
  static constexpr int kMaxDamaged = 3;
  // A connection that has held so long works. Less is no sign of life: a server
  // may take connections and refuse every call.
  static constexpr absl::Duration kWorks = absl::Seconds(1);

  // Before a call that a limit refused is made again, at least.
  static constexpr absl::Duration kLimitPause = absl::Milliseconds(100);

  explicit RetryPolicy(absl::Duration window) : window_(window) {}

  // The pause before the next attempt; nullopt: give up. `connected`: how long
  // the failed attempt had a connection, as far as it is known.
  absl::optional<absl::Duration> AfterFailure(
      const grpc::Status& status, absl::Time now,
      absl::Duration connected = absl::ZeroDuration());
  // The end of the outage's window; InfiniteFuture: no connection was lost.
  absl::Time window_end() const { return first_loss_ + window_; }

 private:
  absl::Duration window_;
  absl::Time first_loss_ = absl::InfiniteFuture();
  absl::Duration pause_ = absl::ZeroDuration();
  int damaged_ = 0;
};

// The policy for what goes on after the end of an epoch (P27), in calls that
// are made again each time the job is back. An attempt that lasted longer than
// `works` had a job that worked; the next loss has a window of its own then.
// Thread-compatible.
class RecoveryWindow {
 public:
  static constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
  static constexpr absl::Duration kLastPause = absl::Seconds(1);

  RecoveryWindow(absl::Duration window, absl::Duration works)
      : window_(window), works_(works) {}

  // The pause before the next attempt (none, then 0.1 s to 1 s); nullopt: give
  // up. `lasted`: the failed attempt.
  absl::optional<absl::Duration> AfterFailure(absl::Time now,
                                              absl::Duration lasted);
  // When it gives up; InfiniteFuture: nothing has failed.
  absl::Time end() const { return first_loss_ + window_; }

 private:
  absl::Duration window_;
  absl::Duration works_;
  absl::Time first_loss_ = absl::InfiniteFuture();
  absl::Duration pause_ = absl::ZeroDuration();
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_RETRY_H_
