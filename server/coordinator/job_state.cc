// Sessions and the job's end; joins are in job_joins.cc, commits and rounds in
// job_rounds.cc.
#include "server/coordinator/job_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace agg {

JobState::JobState(const CoordinatorOptions& options, uint64_t epoch,
                   absl::Time now, JobStart start)
    : options_(options),
      epoch_(epoch),
      seeded_(true),
      started_(start.record.started),
      version_(start.id.version),
      made_(start.id.made),
      history_(start.record.history),
      line_(start.record.line),
      highest_session_(start.highest_session),
      manifest_(std::move(start.manifest)),
      sessions_(std::move(start.sessions)),
      opened_at_(now),
      outcomes_(std::move(start.record.outcomes)),
      used_rows_(std::move(start.record.used_rows)) {
  // Long enough for a worker that has to find its way back, whatever the lease.
  const absl::Time lease_end =
      now + std::max(options_.lease, absl::Seconds(10));
  for (MemberState& known : start.members) {
    Member member;
    member.rank = known.rank;
    member.session = known.session;
    member.client = std::move(known.client);
    member.identity = std::move(known.identity);
    member.first_round = known.first_round;
    member.lease_end = lease_end;
    sessions_.Begin(member.session, member.rank, member.first_round,
                    member.client, member.identity);
    highest_session_ = std::max(highest_session_, member.session);
    newest_sessions_[member.rank] = member.session;
    members_[member.rank] = std::move(member);
  }
}

void JobState::StayFinished(const std::string& why, bool failed) {
  finished_ = true;
  failed_ = failed;
  end_reason_ = why;
}

void JobState::StayFinishedIfDue() {
  if (options_.max_rounds > 0 && version_ >= options_.max_rounds) {
    return StayFinished(MaxRoundsReached(), /*failed=*/false);
  }
  const std::optional<double> tau = LastTau();
  if (tau.has_value() && ReachesTau(*tau)) {
    StayFinished(TauReached(*tau), /*failed=*/false);
  }
}

std::optional<double> JobState::LastTau() const {
  if (version_ == 0) return std::nullopt;
  const std::optional<RoundResult> last = outcomes_.Find(version_ - 1, 0, 0);
  if (!last.has_value()) return std::nullopt;
  return last->tau;
}

bool JobState::ReachesTau(double tau) const {
  const double limit = options_.combine.scale_invariant_iterations;
  return limit > 0.0 && tau >= limit;
}

std::string JobState::LimitReached() const {
  if (options_.max_rounds > 0 && version_ >= options_.max_rounds) {
    return MaxRoundsReached();
  }
  const std::optional<double> tau = LastTau();
  return tau.has_value() && ReachesTau(*tau) ? TauReached(*tau) : "";
}

void JobState::FillRecord(JobRecord* record) const {
  record->history = history_;
  record->line = line_;
  record->started = started_;
  record->outcomes = outcomes_.rounds();
  record->used_rows = used_rows_;
}

absl::Status JobState::CheckEpoch(uint64_t epoch) const {
  if (epoch == epoch_) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("stale epoch ", epoch, "; current epoch ", epoch_));
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
  (*member)->disconnected = false;
  return absl::OkStatus();
}

absl::Status JobState::BeginGrace(uint64_t session, absl::Time now) {
  absl::StatusOr<Member*> member = Find(session);
  if (!member.ok()) return member.status();
  absl::Time& lease_end = (*member)->lease_end;
  lease_end = std::min(lease_end, now + options_.reconnect_grace);
  (*member)->disconnected = true;
  return absl::OkStatus();
}

void JobState::EndSession(int32_t rank, DepartureKind kind,
                          const absl::Status& reason) {
  const Member& member = members_.at(rank);
  const uint64_t session = member.session;
  effects_.departures.push_back({kind, rank, member.client,
                                 std::string(reason.message()), session,
                                 member.identity});
  sessions_.End(session, reason);
  members_.erase(rank);
  effects_.ended.push_back({session, reason});
}

void JobState::RemoveMember(int32_t rank, DepartureKind kind,
                            const absl::Status& reason) {
  SessionChange change;
  change.session = members_.at(rank).session;
  change.rank = rank;
  change.remove = true;
  change.keep_row = HasContribution(rank, change.session) ||
                    seed_committed_ == change.session;
  change.evicted = kind == DepartureKind::kEvicted ||
                   kind == DepartureKind::kLeft ||
                   kind == DepartureKind::kSuperseded;
  change.reason = std::string(reason.message());
  EndSession(rank, kind, reason);
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
  // Shards answer it as an eviction, with ABORTED: NOT_FOUND would ask the
  // worker to join again.
  RemoveMember((*member)->rank, DepartureKind::kLeft,
               absl::AbortedError("this session has left the job"));
  last_left_ = members_.empty();
  FinishIfLastLeft();
  return absl::OkStatus();
}

absl::StatusOr<Eviction> JobState::Evict(int32_t rank,
                                         const std::string& reason) {
  const auto found = members_.find(rank);
  if (found == members_.end()) {
    const auto newest = newest_sessions_.find(rank);
    const absl::Status end = newest == newest_sessions_.end()
                                 ? absl::OkStatus()
                                 : sessions_.Rank(newest->second).status();
    return absl::NotFoundError(
        absl::StrCat("nobody is in the job as rank ", rank,
                     end.ok() ? "" : "; its last session: ", end.message()));
  }
  const Member& member = found->second;
  const Eviction eviction = {member.session, member.client,
                             HasContribution(rank, member.session)};
  const std::string message = absl::StrCat("evicted: ", reason);
  effects_.events.push_back(
      {member.session, JobEvent{JobEventKind::kEvicted, version_, message}});
  RemoveMember(rank, DepartureKind::kEvicted, absl::AbortedError(message));
  return eviction;
}

void JobState::KeepEvicted(const std::vector<EvictedSession>& evicted) {
  for (const EvictedSession& one : evicted) {
    highest_session_ = std::max(highest_session_, one.session);
    if (sessions_.Knows(one.session)) continue;
    sessions_.Begin(one.session, /*rank=*/-1);
    sessions_.End(one.session, absl::AbortedError(one.reason));
  }
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
    RemoveMember(rank,
                 members_.at(rank).disconnected ? DepartureKind::kDisconnected
                                                : DepartureKind::kLeaseExpired,
                 absl::NotFoundError(reason));
  }
  return next;
}

void JobState::Finish(const std::string& why) {
  if (finished_) return;
  finished_ = true;
  end_reason_ = why;
  SessionChange end;
  end.finished = true;
  end.remove = true;
  effects_.changes.push_back(std::move(end));
  effects_.events.push_back(
      {0, JobEvent{JobEventKind::kFinished, version_,
                   absl::StrCat("finished at version ", version_, ": ", why)}});
}

void JobState::Fail(const std::string& why) {
  if (finished_) return;
  failed_ = true;
  Finish(why);
}

absl::Status JobState::FinishedError() const {
  return absl::FailedPreconditionError(absl::StrCat(
      "the job has finished at version ", version_, ": ", end_reason_));
}

void JobState::FinishIfLastLeft() {
  if (last_left_ && seeded_ && started_ && members_.empty() &&
      contributions_.empty()) {
    Finish("the last worker has left");
  }
}

Waiting JobState::waiting() const {
  Waiting waiting;
  waiting.started = started_;
  waiting.seeded = seeded_;
  waiting.expected = options_.workers;
  for (const auto& [rank, member] : members_) {
    waiting.joined.push_back(rank);
    if (member.session == seed_session_) waiting.seed_rank = rank;
    if (seeded_ && member.first_round > version_) {
      waiting.joining.push_back(rank);
    }
  }
  waiting.round = version_;
  waiting.uncommitted = MissingRanks();
  waiting.rows_since = waiting_since_;
  if (options_.quorum > 0) {
    waiting.num_needed = std::max(
        options_.quorum - static_cast<int32_t>(contributions_.size()), 0);
  }
  waiting.has_round_timeout = options_.round_timeout > absl::ZeroDuration() ||
                              options_.round_timeout_mad > 0.0;
  return waiting;
}

}  // namespace agg
