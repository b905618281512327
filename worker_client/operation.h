// What AggClient has begun and ends by itself: waited for, asked, called back,
// cancelled.
#ifndef AGG_WORKER_CLIENT_OPERATION_H_
#define AGG_WORKER_CLIENT_OPERATION_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker_client/client_types.h"

namespace agg {

class AggClient;
class OperationState;
class ShardRouter;

// A handle: copies stand for the same operation, which goes on without any, and
// which handles may outlive, as they may its client. Thread-safe.
//
// The memory that an operation was given is the client's until Done(), also
// after Cancel: then gRPC does not read or write it any more.
class Operation {
 public:
  Operation();  // done, with FAILED_PRECONDITION: it was never begun
  explicit Operation(std::shared_ptr<OperationState> state);

  bool Done() const;
  // Why it failed; OK while it is not Done().
  absl::Status Status() const;
  // Waits until it is done: Status(). If no thread of the client has begun it,
  // it runs on this one. Not from a callback.
  absl::Status Wait();
  // Waits until it is done (true) or `deadline`, and leaves it going on.
  bool WaitUntil(absl::Time deadline);
  // It ends soon, with CANCELLED unless it ends otherwise meanwhile. What the
  // servers know by then they know: a commit that was sent may count.
  void Cancel();
  // Calls back once, when it is done: on a thread of the client, on one that
  // waits or cancels, or at once on this one. The callback must not block or
  // destroy the client; it may begin operations.
  void OnDone(std::function<void()> callback);

 protected:
  friend class AggClient;
  std::shared_ptr<OperationState> state_;
};

// A version on its way into tensors.
class PullOperation : public Operation {
 public:
  PullOperation() = default;
  PullOperation(std::shared_ptr<OperationState> state,
                std::shared_ptr<const ShardRouter> router);

  // Waits until this tensor has its values, and may be read while others are on
  // their way: OK, and it is not written again before the operation is done,
  // unless the job goes back (kRewound; also from a version that a pipelined
  // round was about to publish), the session is replaced, or newer
  // versions replace this one meanwhile: then the outcome names another version
  // than the next one. Else how the operation failed;
  // DEADLINE_EXCEEDED at `deadline`; INVALID_ARGUMENT: no tensor of that name.
  absl::Status WaitForTensor(absl::string_view name,
                             absl::Time deadline = absl::InfiniteFuture());

 private:
  std::shared_ptr<const ShardRouter> router_;
};

// A round on its way to its outcome, and the version that it makes.
class RoundOperation : public PullOperation {
 public:
  using PullOperation::PullOperation;

  // Waits until it is done.
  absl::StatusOr<RoundOutcome> Outcome();
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_OPERATION_H_
