// One list for all waiters: there are some per worker, and all of one round
// are replied to at once.
#include "server/coordinator/outcome_waiters.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/dcheck.h"
#include "server/base/status_macros.h"

namespace agg {

// A table of the streams that speak for sessions. It is apart from JobState,
// which knows sessions and leases, because a stream's end is not a session's
// end.

uint64_t EventStreams::Open(uint64_t session, EventCallback on_event) {
  const uint64_t number = next_number_++;
  newest_[session] = {number, std::move(on_event)};
  return number;
}

std::optional<uint64_t> EventStreams::Close(uint64_t stream) {
  // There are as many sessions as workers, and streams end rarely: a search is
  // cheaper to read than a second map.
  const auto found = std::find_if(
      newest_.begin(), newest_.end(),
      [stream](const auto& entry) { return entry.second.number == stream; });
  if (found == newest_.end()) return std::nullopt;
  const uint64_t session = found->first;
  newest_.erase(found);
  return session;
}

void EventStreams::Forget(uint64_t session) { newest_.erase(session); }

bool EventStreams::Attends(uint64_t session) const {
  return newest_.count(session) != 0;
}

EventStreams::EventCallback EventStreams::CallbackOf(uint64_t session) const {
  const auto found = newest_.find(session);
  return found == newest_.end() ? nullptr : found->second.on_event;
}

std::vector<EventStreams::EventCallback> EventStreams::AllCallbacks() const {
  std::vector<EventCallback> callbacks;
  for (const auto& [session, stream] : newest_) {
    callbacks.push_back(stream.on_event);
  }
  return callbacks;
}

// What is on its way and what waits are apart, since what comes while shards
// are asked is on none of them yet.

namespace {

template <typename Answers>
void Take(Answers* answers, const absl::Status& status, DeferredCalls* calls) {
  for (auto& answer : *answers) {
    calls->Add([done = std::move(answer.done), status] { done(status); });
  }
  answers->clear();
}

}  // namespace

void KeptAnswers::Add(std::string what, absl::Time now, Done done) {
  waiting_.push_back({std::move(what), now + kTimeout, std::move(done)});
}

void KeptAnswers::Send() {
  sent_.insert(sent_.end(), std::make_move_iterator(waiting_.begin()),
               std::make_move_iterator(waiting_.end()));
  waiting_.clear();
}

DeferredCalls KeptAnswers::Kept() {
  DeferredCalls calls;
  Take(&sent_, absl::OkStatus(), &calls);
  return calls;
}

void KeptAnswers::NotKept() {
  waiting_.insert(waiting_.begin(), std::make_move_iterator(sent_.begin()),
                  std::make_move_iterator(sent_.end()));
  sent_.clear();
}

DeferredCalls KeptAnswers::Refuse(const absl::Status& reason) {
  DeferredCalls calls;
  Take(&sent_, reason, &calls);
  Take(&waiting_, reason, &calls);
  return calls;
}

DeferredCalls KeptAnswers::Expire(absl::Time now, const std::string& why) {
  DeferredCalls calls;
  for (std::vector<Answer>* answers : {&sent_, &waiting_}) {
    std::vector<Answer> left;
    for (Answer& answer : *answers) {
      if (now < answer.until) {
        left.push_back(std::move(answer));
        continue;
      }
      calls.Add([done = std::move(answer.done),
                 status = absl::UnavailableError(absl::StrCat(
                     answer.what,
                     ", but not all shards have confirmed it "
                     "within ",
                     absl::FormatDuration(kTimeout),
                     ", so that the loss of a process may undo it: ", why,
                     "; the call may be repeated"))] { done(status); });
    }
    *answers = std::move(left);
  }
  return calls;
}

void OutcomeWaiters::Reply(const Callback& done, const OutcomeAnswer& answer) {
  AGG_DCHECK(!IsPending(answer));
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
  AGG_RETURN_IF_ERROR(CheckRoom(call, query.session));
  waiters_.push_back({++last_number_, call, query, std::move(done)});
  return last_number_;
}

DeferredCalls OutcomeWaiters::Answer(Call call, const OutcomeQuery& query,
                                     OutcomeAnswer answer, Callback done,
                                     uint64_t* number) {
  *number = 0;
  if (IsPending(answer)) {
    const absl::StatusOr<uint64_t> kept = Add(call, query, done);
    if (kept.ok()) {
      *number = *kept;
      return {};
    }
    answer = kept.status();
  }
  DeferredCalls calls;
  calls.Add([done = std::move(done), answer = std::move(answer)] {
    Reply(done, answer);
  });
  return calls;
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
