// The long polls: who waits for the outcome of which round. They are bounded,
// since each keeps memory that a peer asks for.
#ifndef AGG_SERVER_COORDINATOR_OUTCOME_WAITERS_H_
#define AGG_SERVER_COORDINATOR_OUTCOME_WAITERS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/coordinator/deferred_calls.h"
#include "server/coordinator/round_result.h"

namespace agg {

// Each callback is called exactly once, by the DeferredCalls that a method
// returns, unless its waiter is removed; until then it is kept here.
// Thread-compatible.
class OutcomeWaiters {
 public:
  // The call that waits. The two have bounds of their own: anybody may call
  // WaitRound, and must not keep a worker from committing.
  enum class Call : uint8_t { kCommit, kWaitRound };
  // Waiting calls of one kind and session, and WaitRounds in all.
  static constexpr size_t kMaxPerSession = 16;
  static constexpr size_t kMaxWaitRounds = 4096;

  using Callback = std::function<void(absl::StatusOr<RoundResult>)>;

  // Calls `done` with an answer that is known. REQUIRES: !IsPending(answer).
  static void Reply(const Callback& done, const OutcomeAnswer& answer);

  // Keeps `done` and returns the waiter's number, which is not 0. `done` is not
  // kept if the bounds are reached: RESOURCE_EXHAUSTED.
  absl::StatusOr<uint64_t> Add(Call call, const OutcomeQuery& query,
                               Callback done);
  // The caller has gone: its callback is forgotten. A number that is not known
  // (any more) changes nothing.
  void Remove(uint64_t number);
  size_t size() const { return waiters_.size(); }

  // Asks for each waiter's answer; those that have one now are replied to.
  DeferredCalls ReplyToKnown(
      const std::function<OutcomeAnswer(const OutcomeQuery&)>& ask);
  // The waiters of one session, or all, get `reason`, which is not OK.
  DeferredCalls FailSession(uint64_t session, const absl::Status& reason);
  DeferredCalls FailAll(const absl::Status& reason);

 private:
  struct Waiter {
    uint64_t number;
    Call call;
    OutcomeQuery query;
    Callback done;
  };
  absl::Status CheckRoom(Call call, uint64_t session) const;

  std::vector<Waiter> waiters_;  // in the order of Add
  uint64_t last_number_ = 0;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_OUTCOME_WAITERS_H_
