// Commits, outcomes and rounds: the second half of a JobState.
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/job_state.h"

namespace agg {
namespace {

absl::Status CheckRow(const CommitCall& call) {
  const RowInfo& row = call.row;
  if (row.examples < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "commit.examples is ", row.examples, "; allowed: 1 or more"));
  }
  if (row.accumulation < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "commit.accumulation is ", row.accumulation, "; allowed: 1 or more"));
  }
  if (!std::isfinite(row.loss_scale) || row.loss_scale <= 0.0) {
    return absl::InvalidArgumentError(
        absl::StrCat("commit.loss_scale is ", row.loss_scale,
                     "; allowed: finite and above 0"));
  }
  return absl::OkStatus();
}

}  // namespace

// --- Commits ----------------------------------------------------------------

absl::StatusOr<std::optional<RoundResult>> JobState::CommitSeed(
    const CommitCall& call) {
  if (call.session != seed_session_) {
    return absl::AlreadyExistsError(
        seeded_ ? absl::StrCat("the job is seeded; Pull its current version ",
                               version_)
                : "another worker has the seed role; Pull version 0 instead");
  }
  if (!seeded_) {
    if (!call.pushed.ok()) return call.pushed;
    seed_committed_ = call.session;
    return std::optional<RoundResult>();
  }
  RoundResult outcome;
  outcome.epoch = epoch_;
  outcome.kind = OutcomeKind::kSeeded;
  outcome.included = true;
  outcome.finished = finished_;
  return std::optional<RoundResult>(outcome);
}

absl::StatusOr<std::optional<RoundResult>> JobState::Commit(
    const CommitCall& call, absl::Time now) {
  absl::Status status = CheckEpoch(call.epoch);
  if (!status.ok()) return status;
  absl::StatusOr<Member*> member = Find(call.session);
  if (!member.ok()) return member.status();
  if (call.kind == PushKind::kSeed) return CommitSeed(call);
  status = CheckRow(call);
  if (!status.ok()) return status;
  if (seeded_ && call.round < version_) {
    return Outcome(call.round, call.session);
  }
  if (finished_) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job has finished at version ", version_));
  }
  // A version can be pulled from the shards shortly before the coordinator
  // knows that all of them have published it: commits of its round may come
  // while it is on its way.
  const bool on_its_way = seeded_
                              ? closing_ && call.round == version_ + 1
                              : seed_committed_.has_value() && call.round == 0;
  if ((!on_its_way && (!seeded_ || call.round > version_)) ||
      (*member)->first_round > call.round) {
    return absl::FailedPreconditionError(absl::StrCat(
        "commit of round ", call.round, "; ",
        seeded_ ? absl::StrCat("current version ", version_,
                               ", this session takes part from round ",
                               (*member)->first_round)
                : "no version is published yet"));
  }
  std::map<int32_t, Contribution>& contributions =
      on_its_way ? next_contributions_ : contributions_;
  if ((closing_ && !on_its_way) || contributions.count((*member)->rank) != 0) {
    return std::optional<RoundResult>();  // late, or a repeat: wait
  }
  if (!call.pushed.ok()) return call.pushed;
  if (contributions_.empty()) waiting_since_ = now;
  Contribution contribution{call.session, call.row, call.loss, now,
                            call.traceparent};
  contribution.row.rank = (*member)->rank;
  contributions[(*member)->rank] = contribution;
  return std::optional<RoundResult>();
}

absl::StatusOr<std::optional<RoundResult>> JobState::Outcome(
    uint64_t round, uint64_t session) const {
  if (!seeded_ || round >= version_) {
    if (!finished_) return std::optional<RoundResult>();
    return absl::FailedPreconditionError(
        absl::StrCat("the job has finished at version ", version_));
  }
  for (const KeptOutcome& kept : outcomes_) {
    if (kept.outcome.round != round) continue;
    RoundResult outcome = kept.outcome;
    outcome.included = session != 0 && kept.sessions.count(session) != 0;
    return std::optional<RoundResult>(outcome);
  }
  return absl::OutOfRangeError(
      absl::StrCat("the outcome of round ", round,
                   " is no longer kept; current version ", version_));
}

void JobState::FinishSeed(absl::Time now) {
  seeded_ = true;
  seed_committed_.reset();
  version_ = 0;
  OpenRound(now);
}

// --- Rounds -----------------------------------------------------------------

CloseSnapshot JobState::close_snapshot() const {
  CloseSnapshot snapshot;
  snapshot.started = started_;
  snapshot.num_contributions = static_cast<int32_t>(contributions_.size());
  for (const auto& [rank, member] : members_) {
    if (member.first_round > version_) {
      ++snapshot.num_joining;
      continue;
    }
    ++snapshot.num_members;
    if (contributions_.count(rank) == 0) ++snapshot.num_waiting;
  }
  // A contributor that is gone has been a member of the round, too.
  for (const auto& [rank, contribution] : contributions_) {
    const auto member = members_.find(rank);
    if (member == members_.end() || member->second.first_round > version_) {
      ++snapshot.num_members;
    }
  }
  snapshot.opened_at = opened_at_;
  snapshot.waiting_since = waiting_since_;
  return snapshot;
}

void JobState::Start(absl::Time now) {
  if (started_) return;
  started_ = true;
  if (!contributions_.empty()) waiting_since_ = now;
}

std::vector<int32_t> JobState::MissingRanks() const {
  std::vector<int32_t> missing;
  for (const auto& [rank, member] : members_) {
    if (member.first_round <= version_ && contributions_.count(rank) == 0) {
      missing.push_back(rank);
    }
  }
  return missing;
}

void JobState::OpenRound(absl::Time now) {
  contributions_ = std::exchange(next_contributions_, {});
  opened_at_ = now;
  waiting_since_ = contributions_.empty() ? absl::InfiniteFuture() : now;
}

void JobState::FinishRound(RoundResult outcome, absl::Time now) {
  KeptOutcome kept;
  for (int32_t rank : outcome.ranks) {
    const auto found = contributions_.find(rank);
    if (found != contributions_.end()) {
      kept.sessions.insert(found->second.session);
    }
  }
  closing_ = false;
  version_ = outcome.version;
  OpenRound(now);
  last_left_ = last_left_ && members_.empty();
  if (outcome.finished ||
      (options_.max_rounds > 0 && version_ >= options_.max_rounds)) {
    Finish();
  }
  FinishIfLastLeft();
  outcome.finished = finished_;
  kept.outcome = std::move(outcome);
  outcomes_.push_back(std::move(kept));
  if (outcomes_.size() > kNumKeptOutcomes) outcomes_.pop_front();
}

}  // namespace agg
