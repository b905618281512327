// The rule, and what else changes between two rounds (P37), as changes of plain
// state.
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/combine/pipelining.h"
#include "server/coordinator/coordinator_state.h"
#include "server/coordinator/job_facts.h"

namespace agg {

// --- The rule ----------------------------------------------------------------

absl::StatusOr<CombineOptions> CoordinatorState::Changed(
    const CombineOptions& before, const RuleChange& change) const {
  absl::StatusOr<CombineOptions> after =
      ChangedCombination(before, change, options_.workers);
  if (!after.ok() || !options_.pipelined) return after;
  const absl::Status status = CheckPipelining(*after);
  if (!status.ok()) return status;
  return after;
}

absl::Status CoordinatorState::CheckSetRule() const {
  if (draining_) return CheckAcceptingCalls();
  if (finished()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job has finished at version ", job_->version(), ": ",
                     job_->end_reason()));
  }
  // What the shards have kept would undo it when they are attached.
  if (!epoch_on_) {
    return absl::UnavailableError(absl::StrCat(
        "no rule is set before all shards are attached; try again then: ",
        no_epoch_.message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<RuleChangeResult> CoordinatorState::SetRule(
    const RuleChange& change, const CombinationCheck& check) {
  const absl::Status may = CheckSetRule();
  if (!may.ok()) return may;
  // Two changes before the next round add up.
  const CombineOptions& base = next_combine_.value_or(combine_);
  absl::StatusOr<CombineOptions> after = Changed(base, change);
  if (!after.ok()) return after.status();
  RuleChangeResult result;
  result.before = NamesOf(combine_);
  result.after = NamesOf(*after);
  if (check != nullptr) {
    const absl::Status status = check(result.after, job_->manifest());
    if (!status.ok()) return status;
  }
  const double learning_rate = after->schedule.learning_rate;
  rule_set_ = JobChanges();
  rule_set_.rule = ChangeTo(job_->seeded() ? combine_ : *after);
  next_combine_ = *std::move(after);
  if (job_->seeded()) {
    // The open round goes on as it began, whatever it waits for: workers may
    // have set their rows up for it.
    result.first_round = job_->version() + 1;
    rule_set_.next_rule = ChangeTo(*next_combine_);
    rule_set_.next_round = result.first_round;
  } else {
    AdoptNextCombination();
  }
  NoteChange();
  LogInfo("from round ", result.first_round, " on: rule ", result.after.rule,
          ", scope ", result.after.scope, ", step scale ",
          result.after.step_scale, ", learning rate ", learning_rate);
  return result;
}

// --- Facts -------------------------------------------------------------------

void CoordinatorState::NoteChange() {
  // With the round that the newest rule is from, also when that has begun:
  // after a rewind the rounds before it have the one that was in effect when it
  // was set. Rules before that one are not kept, so that rounds that they made
  // are done again by it.
  JobChanges changes = rule_set_;
  changes.evicted = evicted_;
  if (job_ != nullptr && job_->finished()) {
    changes.finished = true;
    changes.failed = job_->failed();
    changes.end_reason = job_->end_reason();
  }
  facts_.epoch = job_ == nullptr ? 0 : job_->epoch();
  ++facts_.number;
  facts_.text = JobChangesText(changes);
  facts_are_new_ = true;
}

std::optional<JobFacts> CoordinatorState::TakeNewFacts() {
  if (!epoch_on_ || !std::exchange(facts_are_new_, false)) return std::nullopt;
  facts_.epoch = job_->epoch();
  return facts_;
}

// What a new process finds, and what a rewind undoes or keeps. A change that
// the configuration does not allow any more is said and left out.
void CoordinatorState::AdoptFacts(const JobFacts& facts, uint64_t version) {
  if (facts_ < facts) facts_ = facts;
  const absl::StatusOr<JobChanges> changes = ParseJobChanges(facts_.text);
  if (changes.ok()) {
    AddEvicted(changes->evicted, &evicted_);
    ApplyRules(*changes, version);
  } else {
    LogWarning("what was changed between rounds is lost: ",
               changes.status().message());
  }
}

void CoordinatorState::ApplyRules(const JobChanges& changes, uint64_t version) {
  absl::StatusOr<CombineOptions> rule = options_.combine;
  absl::StatusOr<CombineOptions> next = options_.combine;
  if (changes.rule.has_value()) {
    rule = Changed(options_.combine, *changes.rule);
    next = rule;
  }
  if (changes.next_rule.has_value()) {
    next = Changed(options_.combine, *changes.next_rule);
  }
  if (!rule.ok() || !next.ok()) {
    LogWarning("the rule that was set is not taken over: ",
               rule.ok() ? next.status().message() : rule.status().message());
    return;
  }
  rule_set_ = JobChanges();
  rule_set_.rule = changes.rule;
  rule_set_.next_rule = changes.next_rule;
  rule_set_.next_round = changes.next_round;
  const bool later =
      changes.next_rule.has_value() && version < changes.next_round;
  combine_ = later ? *std::move(rule) : *next;
  next_combine_.reset();
  if (later) next_combine_ = *std::move(next);
}

// Also a job whose parameters are lost: it asks for no Seed.
void CoordinatorState::ApplyEnd() {
  const absl::StatusOr<JobChanges> changes = ParseJobChanges(facts_.text);
  if (!changes.ok()) return;
  if (!changes->finished) {
    // The last round may have ended without anybody to say so.
    job_->StayFinishedIfDue();
    if (job_->finished()) NoteChange();
    return;
  }
  // A limit that was raised lets a job go on that had finished by it.
  const bool by_limit = absl::StartsWith(changes->end_reason, "max_rounds (") ||
                        absl::StartsWith(changes->end_reason, "tau (");
  if (job_->seeded() && by_limit && job_->LimitReached().empty()) {
    LogWarning("the job had finished (", changes->end_reason,
               "); its limit was raised, so that it goes on");
    return;
  }
  job_->StayFinished(changes->end_reason, changes->failed);
  LogWarning("the job stays finished (", changes->end_reason, "); ", WayBack());
}

std::string CoordinatorState::WayBack() const {
  const std::string limit = job_->LimitReached();
  return absl::StrCat(
      limit.empty() ? "`aggctl resume` lets it go on"
                    : "to go on with it raise the limit in the configuration "
                      "and restart",
      options_.checkpoint.enabled
          ? absl::StrCat(", and another job begins with what it has by "
                         "checkpoint { restore_job: \"",
                         options_.job, "\" }")
          : "");
}

absl::StatusOr<ResumeResult> CoordinatorState::Resume() {
  const absl::Status accepting = CheckAcceptingCalls();
  if (!accepting.ok()) return accepting;
  if (!job_->finished()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the job has not finished: it is at version ", job_->version()));
  }
  if (!job_->seeded() || lost_after_end()) {
    return absl::FailedPreconditionError(
        "the job has finished, and its parameters are lost");
  }
  const std::string limit = job_->LimitReached();
  if (!limit.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(limit, ", so that it would end at once: ", WayBack()));
  }
  const absl::StatusOr<JobChanges> before = ParseJobChanges(facts_.text);
  JobChanges changes;
  if (before.ok()) changes = *before;
  changes.finished = false;
  changes.failed = false;
  changes.end_reason.clear();
  facts_.epoch = job_->epoch();
  ++facts_.number;
  facts_.text = JobChangesText(changes);
  return ResumeResult{job_->version(), job_->end_reason()};
}

void CoordinatorState::AdoptNextCombination() {
  // After a rewind its round may be far.
  if (!next_combine_.has_value() || job_->version() < rule_set_.next_round) {
    return;
  }
  combine_ = *std::exchange(next_combine_, std::nullopt);
}

CombinationNames CoordinatorState::CombinationOf(uint64_t round) const {
  const bool later = next_combine_.has_value() && round >= rule_set_.next_round;
  return NamesOf(later ? *next_combine_ : combine_);
}

}  // namespace agg
