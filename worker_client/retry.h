// When a failed transfer is tried again, and for how long a job that has lost a
// process is waited for: this is pure, as the time is an argument. Also what
// ends many calls at once, and what is said of a call that failed.
#ifndef AGG_WORKER_CLIENT_RETRY_H_
#define AGG_WORKER_CLIENT_RETRY_H_

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/tls_options.h"
#include "server/base/mutex.h"

namespace agg {

// Ends many calls at once, for one reason. Apart from the streams because all
// of them end for the same reasons: the lease is gone, a shard is lost. Holds a
// reason, OK at first. Thread-safe.
class CancelSource {
 public:
  CancelSource() = default;
  CancelSource(const CancelSource&) = delete;
  CancelSource& operator=(const CancelSource&) = delete;

  // Registers a call: it is cancelled when the source is, at once if that has
  // happened. REQUIRES: the context outlives this, and this the call's use
  // of the source.
  class Registration {
   public:
    Registration(CancelSource* source, grpc::ClientContext* context);
    // Registers a wait: `wake` is called when the source is cancelled, perhaps
    // from here, at most once. It must not wait long, nor use the source.
    Registration(CancelSource* source, std::function<void()> wake);
    ~Registration();
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    friend class CancelSource;
    CancelSource* const source_;
    const std::function<void()> cancel_;
  };

  // OK while not cancelled.
  absl::Status status() const;

  // Cancels all registered calls and ends waits. The first reason stays;
  // returns whether it is this one.
  bool Cancel(absl::Status reason);

  // Waits for `duration`, or until this is cancelled. Returns status().
  absl::Status WaitFor(absl::Duration duration);

 private:
  mutable Mutex mutex_;
  CondVar cancelled_;
  absl::Status reason_ ABSL_GUARDED_BY(mutex_);
  std::set<const Registration*> registered_ ABSL_GUARDED_BY(mutex_);
};

// Returns the status of the first source that has a reason; else OK.
absl::Status FirstReason(absl::Span<CancelSource* const> sources);

// What ends a call that waits: the system's time, or a source with its reason.
struct CallLimit {
  CallLimit(absl::Time deadline, CancelSource* cancel = nullptr)  // NOLINT
      : deadline(deadline), cancel(cancel) {}

  // OK while not cancelled.
  absl::Status cancelled() const {
    return cancel == nullptr ? absl::OkStatus() : cancel->status();
  }

  absl::Time deadline;
  CancelSource* cancel;  // outlives the call; may be null
};

// The deadline of a look: to gRPC, a negative time since the Unix epoch is the
// infinite future.
constexpr absl::Time kAtOnce = absl::UnixEpoch();

// Shuts the queue down and takes what is left in it: gRPC wants that before the
// queue is destroyed.
void Drain(grpc::CompletionQueue* queue);

// The far end of a call, for messages.
struct ShardName {
  int ordinal = 0;
  std::string address;
  TlsOptions tls = {};  // of the connection to it
};

// "shard 1 (10.0.0.2:50051)".
std::string ToString(const ShardName& shard);

// What the client says about a call that failed, from gRPC's status
// (proto/status_conversion.h). Same code; the message says which shard, in
// which call, what it answered and what to do about it. Where no connection
// could be made it makes one more and says so if TLS is why
// (server/tls/tls_diagnosis.h): that blocks while the name is resolved, and for
// a second. So who tries again converts what is said or returned alone, where
// that can be known before.
absl::Status FromGrpc(const grpc::Status& status, const ShardName& shard,
                      absl::string_view call);

// Whether the same call may succeed on a new connection: it is UNAVAILABLE,
// or was lost in a way that gRPC reports otherwise. REQUIRES: this end has not
// cancelled the call.
bool IsConnectionLoss(const grpc::Status& status);

// Whether the server runs, and waits for the job's other shards: for a moment
// at each start.
bool IsStarting(const grpc::Status& status);

// Whether it was refused by a limit of the server's (P46): the same call may
// succeed after a while.
bool IsLimit(const grpc::Status& status);

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

  // Least pause before a call that a limit refused is made again.
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
