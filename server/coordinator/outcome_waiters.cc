// One list for all waiters: there are some per worker, and all of one round
// are replied to at once.
#include "server/coordinator/outcome_waiters.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace agg {

void OutcomeWaiters::Reply(const Callback& done, const OutcomeAnswer& answer) {
  if (answer.ok()) {
    done(**answer);
  } else {
    done(answer.status());
  }
}

// Counts anew for each call: the list is short, and a count that is kept could
// differ from it.
absl::Status OutcomeWaiters::CheckRoom(Call call, uint64_t session) const {
  size_t of_session = 0;
  size_t in_all = 0;
  for (const Waiter& waiter : waiters_) {
    if (waiter.call != call) continue;
    ++in_all;
    if (waiter.query.session == session) ++of_session;
  }
  // Session 0 is every observer's.
  if (session != 0 && of_session >= kMaxPerSession) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this session has ", of_session,
                     " calls that wait for a round; allowed: ", kMaxPerSession,
                     "; end those that nobody waits for"));
  }
  if (call == Call::kWaitRound && in_all >= kMaxWaitRounds) {
    return absl::ResourceExhaustedError(absl::StrCat(
        in_all, " WaitRound calls wait already; allowed: ", kMaxWaitRounds,
        "; try again later"));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> OutcomeWaiters::Add(Call call,
                                             const OutcomeQuery& query,
                                             Callback done) {
  const absl::Status status = CheckRoom(call, query.session);
  if (!status.ok()) return status;
  waiters_.push_back({++last_number_, call, query, std::move(done)});
  return last_number_;
}

void OutcomeWaiters::Remove(uint64_t number) {
  const auto found = std::find_if(
      waiters_.begin(), waiters_.end(),
      [number](const Waiter& waiter) { return waiter.number == number; });
  if (found != waiters_.end()) waiters_.erase(found);
}

DeferredCalls OutcomeWaiters::ReplyToKnown(
    const std::function<OutcomeAnswer(const OutcomeQuery&)>& ask) {
  DeferredCalls calls;
  std::vector<Waiter> left;
  for (Waiter& waiter : waiters_) {
    const OutcomeAnswer answer = ask(waiter.query);
    if (IsPending(answer)) {
      left.push_back(std::move(waiter));
    } else {
      calls.Add(
          [done = std::move(waiter.done), answer] { Reply(done, answer); });
    }
  }
  waiters_ = std::move(left);
  return calls;
}

DeferredCalls OutcomeWaiters::FailSession(uint64_t session,
                                          const absl::Status& reason) {
  return ReplyToKnown([&](const OutcomeQuery& query) {
    return query.session == session ? OutcomeAnswer(reason)
                                    : OutcomeAnswer(std::nullopt);
  });
}

DeferredCalls OutcomeWaiters::FailAll(const absl::Status& reason) {
  return ReplyToKnown(
      [&](const OutcomeQuery&) { return OutcomeAnswer(reason); });
}

}  // namespace agg
