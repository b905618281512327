// Handles hold a state and nothing else.
#include "worker_client/operation.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status_macros.h"
#include "worker_client/operation_runner.h"
#include "worker_client/shard_router.h"

namespace agg {

Operation::Operation()
    : state_(std::make_shared<OperationState>(absl::FailedPreconditionError(
          "this handle is of no operation; take one from StartPush, "
          "StartCommit, StartPull, StartRound or StartReduce"))) {}
Operation::Operation(std::shared_ptr<OperationState> state)
    : state_(std::move(state)) {}

bool Operation::Done() const { return state_->done(); }
absl::Status Operation::Status() const { return state_->status(); }
absl::Status Operation::Wait() { return state_->Wait(); }
bool Operation::WaitUntil(absl::Time deadline) {
  return state_->WaitUntil(deadline);
}
void Operation::Cancel() {
  state_->Cancel(absl::CancelledError("the operation was cancelled"));
}
void Operation::OnDone(std::function<void()> callback) {
  state_->OnDone(std::move(callback));
}

PullOperation::PullOperation(std::shared_ptr<OperationState> state,
                             std::shared_ptr<const ShardRouter> router)
    : Operation(std::move(state)), router_(std::move(router)) {}

absl::Status PullOperation::WaitForTensor(absl::string_view name,
                                          absl::Time deadline) {
  PullArrivals* const arrivals = state_->arrivals.get();
  if (arrivals == nullptr) {
    AGG_RETURN_IF_ERROR(state_->status());
    return absl::FailedPreconditionError("this operation pulls no tensors");
  }
  const absl::optional<int> tensor = router_->FindTensor(name);
  if (!tensor.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor \"", name, "\" is not in the job's manifest"));
  }
  if (arrivals->Await(*tensor, deadline)) return absl::OkStatus();
  if (state_->done()) return state_->status();
  return absl::DeadlineExceededError(
      absl::StrCat("tensor \"", name, "\" has not arrived yet"));
}

absl::StatusOr<RoundOutcome> RoundOperation::Outcome() {
  AGG_RETURN_IF_ERROR(state_->Wait());
  return state_->outcome;
}

}  // namespace agg
