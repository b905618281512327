// The long polls: who waits for the outcome of which round.
#ifndef AGG_SERVER_COORDINATOR_OUTCOME_WAITERS_H_
#define AGG_SERVER_COORDINATOR_OUTCOME_WAITERS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/coordinator/deferred_calls.h"
#include "server/coordinator/round_result.h"

namespace agg {

// Each callback is called exactly once, by the DeferredCalls that a method
// returns; until then it is kept here. Thread-compatible.
class OutcomeWaiters {
 public:
  using Callback = std::function<void(absl::StatusOr<RoundResult>)>;

  // Calls `done` with an answer that is known. REQUIRES: !IsPending(answer).
  static void Reply(const Callback& done, const OutcomeAnswer& answer);

  void Add(const OutcomeQuery& query, Callback done);

  // Asks for each waiter's answer; those that have one now are replied to.
  DeferredCalls ReplyToKnown(
      const std::function<OutcomeAnswer(const OutcomeQuery&)>& ask);
  // The waiters of one session, or all, get `reason`, which is not OK.
  DeferredCalls FailSession(uint64_t session, const absl::Status& reason);
  DeferredCalls FailAll(const absl::Status& reason);

 private:
  struct Waiter {
    OutcomeQuery query;
    Callback done;
  };
  std::vector<Waiter> waiters_;  // in the order of Add
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_OUTCOME_WAITERS_H_
