// What operators set, and what anybody may ask, from any thread.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/recent_rounds.h"
#include "server/coordinator/rule_change.h"

namespace agg {

absl::StatusOr<RuleChangeResult> Coordinator::SetRule(
    const RuleChange& change, const CombinationCheck& check) {
  MutexLock lock(&mutex_);
  return state_.SetRule(change, check);
}

void Coordinator::SetRuleEverywhere(const RuleChange& change,
                                    RuleCallback done) {
  absl::StatusOr<RuleChangeResult> result = absl::UnknownError("");
  {
    MutexLock lock(&mutex_);
    if (kept_answers_.size() < kMaxQueuedCalls) {
      result = state_.SetRule(change, nullptr);
    } else {
      result = absl::UnavailableError(
          absl::StrCat(kept_answers_.size(),
                       " changes wait until all shards have them; try again"));
    }
    if (result.ok()) {
      AnswerWhenKept("the rule is set",
                     [done, result](const absl::Status& status) {
                       done(status.ok() ? result : status);
                     });
      changed_.NotifyAll();
      return;
    }
  }
  done(result);
}

absl::StatusOr<std::string> Coordinator::OwnerOf(std::optional<uint64_t> epoch,
                                                 uint64_t session) const {
  MutexLock lock(&mutex_);
  const absl::Status status = state_.CheckAcceptingCalls(epoch);
  if (!status.ok()) return status;
  return state_.job()->sessions().Owner(session);
}

absl::StatusOr<JoinResult> Coordinator::Observe() const {
  MutexLock lock(&mutex_);
  return state_.Observe();
}

JobStatus Coordinator::Status() const {
  JobStatus status;
  {
    MutexLock lock(&mutex_);
    status = state_.Status(clock_->Now());
  }
  const std::string waiting = phase_watch_.WaitingText();
  if (!waiting.empty()) {
    absl::StrAppend(&status.message, status.message.empty() ? "" : "; ",
                    waiting);
  }
  status.phase_timeouts = phase_watch_.num_late();
  return status;
}

std::optional<RoundResult> Coordinator::LastOutcome() const {
  MutexLock lock(&mutex_);
  return state_.recent_rounds().last_outcome();
}

std::vector<RoundRecord> Coordinator::Rounds() const {
  MutexLock lock(&mutex_);
  return state_.recent_rounds().records();
}

std::vector<double> Coordinator::TensorOrthogonality() const {
  MutexLock lock(&mutex_);
  return state_.recent_rounds().tensor_orthogonality();
}

bool Coordinator::finished() const {
  MutexLock lock(&mutex_);
  return state_.finished();
}

uint64_t Coordinator::WaitRound(uint64_t epoch, const OutcomeQuery& query,
                                OutcomeCallback done) {
  OutcomeAnswer answer;
  {
    MutexLock lock(&mutex_);
    const absl::Status status = epoch == 0 ? state_.CheckAcceptingCalls()
                                           : state_.CheckAcceptingCalls(epoch);
    answer = status.ok() ? state_.job()->Answer(query) : status;
    if (IsPending(answer)) {
      const absl::StatusOr<uint64_t> number =
          state_.waiters()->Add(OutcomeWaiters::Call::kWaitRound, query, done);
      if (number.ok()) return *number;
      answer = number.status();
    }
  }
  OutcomeWaiters::Reply(done, answer);
  return 0;
}

void Coordinator::CancelWait(uint64_t number) {
  MutexLock lock(&mutex_);
  state_.waiters()->Remove(number);
}

}  // namespace agg
