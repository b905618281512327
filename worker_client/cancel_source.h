// Ends many calls at once, for one reason. Apart from the streams because all
// of them end for the same reasons: the lease is gone, a shard is lost.
#ifndef AGG_WORKER_CLIENT_CANCEL_SOURCE_H_
#define AGG_WORKER_CLIENT_CANCEL_SOURCE_H_

#include <grpcpp/client_context.h>

#include <functional>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/base/mutex.h"

namespace agg {

// Holds a reason, OK at first. Thread-safe.
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

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_CANCEL_SOURCE_H_
