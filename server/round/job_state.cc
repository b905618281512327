#include "server/round/job_state.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

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

absl::Status JobState::CheckEpoch(uint64_t epoch) const {
  if (epoch == epoch_) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("stale epoch ", epoch, "; current epoch ", epoch_));
}

// --- Join -------------------------------------------------------------------

absl::Status JobState::CheckJoin(const JoinCall& call) const {
  if (finished_) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job has finished at version ", version_));
  }
  if (call.rank < 0 || call.rank >= options_.max_workers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank is ", call.rank, "; allowed: 0 to ", options_.max_workers - 1));
  }
  absl::Status status = ValidateManifest(call.manifest);
  if (!status.ok() || !manifest_.has_value()) return status;
  return CompareManifests(*manifest_, call.manifest);
}

bool JobState::HasContribution(int32_t rank, uint64_t session) const {
  const auto found = contributions_.find(rank);
  return found != contributions_.end() && found->second.session == session;
}

SessionChange JobState::BeginJoin(const JoinCall& call, uint64_t session) {
  SessionChange change;
  change.session = session;
  change.rank = call.rank;
  const auto former = members_.find(call.rank);
  if (former != members_.end()) {
    change.replaces = former->second.session;
    change.keep_row = HasContribution(call.rank, change.replaces);
    change.reason =
        absl::StrCat("superseded: another session joined as rank ", call.rank);
    effects_.events.push_back(
        {change.replaces,
         JobEvent{JobEventKind::kSuperseded, version_, change.reason}});
    EndSession(call.rank, absl::AbortedError(change.reason));
    if (seed_session_ == change.replaces && !seeded_) seed_session_ = 0;
  }
  if (!seeded_ && seed_session_ == 0) {
    seed_session_ = session;
    change.seed_role = true;
  }
  return change;
}

uint64_t JobState::FirstRound(bool replaces_uncommitted) const {
  if (!seeded_ || !started_ || replaces_uncommitted) return version_;
  // Nobody is in the open round: there is nothing to disturb.
  if (members_.empty() && contributions_.empty()) return version_;
  return version_ + 1;
}

JoinResult JobState::FinishJoin(const JoinCall& call,
                                const SessionChange& change, absl::Time now) {
  if (!manifest_.has_value()) manifest_ = call.manifest;
  Member member;
  member.rank = call.rank;
  member.session = change.session;
  member.client = call.client;
  member.first_round = FirstRound(change.replaces != 0 && !change.keep_row);
  if (contributions_.count(call.rank) != 0) member.first_round = version_ + 1;
  member.lease_end = now + options_.lease;
  members_[call.rank] = member;
  sessions_.Begin(change.session, call.rank);
  last_left_ = false;
  JoinResult result;
  result.session = change.session;
  result.epoch = epoch_;
  result.version = version_;
  result.seeded = seeded_;
  result.seed_role = !seeded_ && seed_session_ == change.session;
  result.first_round = member.first_round;
  result.committed = contributions_.count(call.rank) != 0;
  result.finished = finished_;
  result.manifest = *manifest_;
  return result;
}

void JobState::CancelJoin(const SessionChange& change) {
  if (seed_session_ == change.session) PassSeedRole();
}

// --- Sessions ---------------------------------------------------------------

absl::StatusOr<Member*> JobState::Find(uint64_t session) {
  absl::StatusOr<int32_t> rank = sessions_.Rank(session);
  if (!rank.ok()) return rank.status();
  return &members_.at(*rank);
}

absl::Status JobState::Renew(uint64_t session, absl::Time now) {
  absl::StatusOr<Member*> member = Find(session);
  if (!member.ok()) return member.status();
  (*member)->lease_end = now + options_.lease;
  return absl::OkStatus();
}

absl::Status JobState::SetAttending(uint64_t session, bool attending,
                                    absl::Time now) {
  absl::StatusOr<Member*> member = Find(session);
  if (!member.ok()) return member.status();
  (*member)->attending = attending;
  (*member)->lease_end = attending ? now + options_.lease
                                   : std::min((*member)->lease_end,
                                              now + options_.reconnect_grace);
  return absl::OkStatus();
}

void JobState::EndSession(int32_t rank, const absl::Status& reason) {
  const uint64_t session = members_.at(rank).session;
  sessions_.End(session, reason);
  members_.erase(rank);
  effects_.ended.push_back({session, reason});
}

void JobState::RemoveMember(int32_t rank, const absl::Status& reason) {
  SessionChange change;
  change.session = members_.at(rank).session;
  change.rank = rank;
  change.remove = true;
  change.keep_row = HasContribution(rank, change.session) ||
                    seed_committed_ == change.session;
  change.reason = std::string(reason.message());
  EndSession(rank, reason);
  effects_.changes.push_back(change);
  // A committed seed counts though its worker is gone, as a row does.
  if (seed_session_ == change.session && !seeded_ &&
      !seed_committed_.has_value()) {
    PassSeedRole();
  }
}

void JobState::PassSeedRole() {
  seed_session_ = 0;
  if (members_.empty()) return;
  const Member& heir = members_.begin()->second;
  seed_session_ = heir.session;
  SessionChange change;
  change.session = heir.session;
  change.rank = heir.rank;
  change.seed_role = true;
  effects_.changes.push_back(change);
  effects_.events.push_back(
      {heir.session, JobEvent{JobEventKind::kSeedRole, version_,
                              "this worker is now the one to Seed"}});
}

absl::Status JobState::Leave(uint64_t session) {
  absl::StatusOr<Member*> member = Find(session);
  if (!member.ok()) return member.status();
  RemoveMember((*member)->rank,
               absl::AbortedError("this session has left the job"));
  last_left_ = members_.empty();
  FinishIfLastLeft();
  return absl::OkStatus();
}

absl::Time JobState::ExpireLeases(absl::Time now) {
  absl::Time next = absl::InfiniteFuture();
  std::vector<int32_t> expired;
  for (const auto& [rank, member] : members_) {
    if (member.lease_end <= now) {
      expired.push_back(rank);
    } else {
      next = std::min(next, member.lease_end);
    }
  }
  for (int32_t rank : expired) {
    const std::string reason =
        absl::StrCat("the lease of rank ", rank, " has run out: Join again");
    effects_.events.push_back(
        {members_.at(rank).session,
         JobEvent{JobEventKind::kExpired, version_, reason}});
    RemoveMember(rank, absl::NotFoundError(reason));
  }
  return next;
}

void JobState::Finish() {
  if (finished_) return;
  finished_ = true;
  effects_.events.push_back(
      {0, JobEvent{JobEventKind::kFinished, version_,
                   absl::StrCat("finished at version ", version_)}});
}

void JobState::FinishIfLastLeft() {
  if (last_left_ && seeded_ && started_ && members_.empty() &&
      contributions_.empty()) {
    Finish();
  }
}

// --- Commits ----------------------------------------------------------------

absl::StatusOr<std::optional<RoundOutcome>> JobState::CommitSeed(
    const CommitCall& call) {
  if (call.session != seed_session_) {
    return absl::AlreadyExistsError(
        seeded_ ? absl::StrCat("the job is seeded; Pull its current version ",
                               version_)
                : "another worker has the seed role; Pull version 0 instead");
  }
  if (!seeded_) {
    seed_committed_ = call.session;
    return std::optional<RoundOutcome>();
  }
  RoundOutcome outcome;
  outcome.epoch = epoch_;
  outcome.kind = OutcomeKind::kSeeded;
  outcome.included = true;
  outcome.finished = finished_;
  return std::optional<RoundOutcome>(outcome);
}

absl::StatusOr<std::optional<RoundOutcome>> JobState::Commit(
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
  if (!seeded_ || call.round > version_ ||
      (*member)->first_round > call.round) {
    return absl::FailedPreconditionError(absl::StrCat(
        "commit of round ", call.round, "; ",
        seeded_ ? absl::StrCat("current version ", version_,
                               ", this session takes part from round ",
                               (*member)->first_round)
                : "no version is published yet"));
  }
  if (closing_ || contributions_.count((*member)->rank) != 0) {
    return std::optional<RoundOutcome>();  // late, or a repeat: wait
  }
  if (contributions_.empty()) first_commit_at_ = now;
  Contribution contribution{call.session, call.row, call.loss};
  contribution.row.rank = (*member)->rank;
  contributions_[(*member)->rank] = contribution;
  return std::optional<RoundOutcome>();
}

absl::StatusOr<std::optional<RoundOutcome>> JobState::Outcome(
    uint64_t round, uint64_t session) const {
  if (!seeded_ || round >= version_) {
    if (!finished_) return std::optional<RoundOutcome>();
    return absl::FailedPreconditionError(
        absl::StrCat("the job has finished at version ", version_));
  }
  for (const KeptOutcome& kept : outcomes_) {
    if (kept.outcome.round != round) continue;
    RoundOutcome outcome = kept.outcome;
    outcome.included = session != 0 && kept.sessions.count(session) != 0;
    return std::optional<RoundOutcome>(outcome);
  }
  return absl::OutOfRangeError(
      absl::StrCat("the outcome of round ", round,
                   " is no longer kept; current version ", version_));
}

void JobState::FinishSeed(absl::Time now) {
  seeded_ = true;
  seed_committed_.reset();
  version_ = 0;
  opened_at_ = now;
}

// --- Rounds -----------------------------------------------------------------

CloseSnapshot JobState::close_snapshot() const {
  CloseSnapshot snapshot;
  snapshot.started = started_;
  snapshot.num_contributions = static_cast<int32_t>(contributions_.size());
  for (const auto& [rank, member] : members_) {
    if (member.first_round > version_) continue;
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
  snapshot.first_commit_at = first_commit_at_;
  return snapshot;
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

void JobState::FinishRound(RoundOutcome outcome, absl::Time now) {
  KeptOutcome kept;
  for (int32_t rank : outcome.ranks) {
    const auto found = contributions_.find(rank);
    if (found != contributions_.end()) {
      kept.sessions.insert(found->second.session);
    }
  }
  contributions_.clear();
  closing_ = false;
  first_commit_at_ = absl::InfiniteFuture();
  version_ = outcome.version;
  opened_at_ = now;
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
