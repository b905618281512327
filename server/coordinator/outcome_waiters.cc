// One list for all waiters: there are some per worker, and all of one round
// are replied to at once.
#include "server/coordinator/outcome_waiters.h"

#include <optional>
#include <utility>

namespace agg {

void OutcomeWaiters::Reply(const Callback& done, const OutcomeAnswer& answer) {
  if (answer.ok()) {
    done(**answer);
  } else {
    done(answer.status());
  }
}

void OutcomeWaiters::Add(const OutcomeQuery& query, Callback done) {
  waiters_.push_back({query, std::move(done)});
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
