// Joins and sessions; commits and rounds are in job_rounds.cc.
#include "server/coordinator/job_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/call_validation.h"

namespace agg {

absl::Status JobState::CheckEpoch(uint64_t epoch) const {
  if (epoch == epoch_) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("stale epoch ", epoch, "; current epoch ", epoch_));
}

// --- Join -------------------------------------------------------------------

absl::Status JobState::CheckJoin(const JoinCall& call) const {
  if (finished_) {
    return FinishedError();
  }
  const absl::Status status = ValidateJoin(call, options_.max_workers);
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
    replaced_first_round_ = former->second.first_round;
    EndSession(call.rank, DepartureKind::kSuperseded,
               absl::AbortedError(change.reason));
    if (seed_session_ == change.replaces) seed_session_ = 0;
  }
  if (!seeded_ && seed_session_ == 0 && !seed_committed_.has_value()) {
    seed_session_ = session;
    change.seed_role = true;
  }
  return change;
}

uint64_t JobState::FirstRound(const SessionChange& change) const {
  if (contributions_.count(change.rank) != 0) return version_ + 1;
  if (!seeded_ || !started_) return version_;
  if (change.replaces != 0) return std::max(replaced_first_round_, version_);
  // Nobody is in the open round: there is nothing to disturb.
  if (members_.empty() && contributions_.empty()) return version_;
  // The open round cannot close without more workers: this is one of them.
  if (options_.floor_policy != FloorPolicy::kWarn &&
      NumIn() < options_.min_workers) {
    return version_;
  }
  return version_ + 1;
}

JoinResult JobState::FinishJoin(const JoinCall& call,
                                const SessionChange& change, absl::Time now) {
  if (!manifest_.has_value()) manifest_ = call.manifest;
  Member member;
  member.rank = call.rank;
  member.session = change.session;
  member.client = call.client;
  member.first_round = FirstRound(change);
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
  // Some shards may have taken the session before another one refused it.
  SessionChange undo;
  undo.session = change.session;
  undo.rank = change.rank;
  undo.remove = true;
  undo.keep_row = true;  // a row of the rank is a former session's
  undo.reason = "the join was refused";
  effects_.changes.push_back(undo);
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
  const uint64_t session = members_.at(rank).session;
  effects_.departures.push_back(
      {kind, rank, members_.at(rank).client, std::string(reason.message())});
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
  change.evicted =
      kind == DepartureKind::kEvicted || kind == DepartureKind::kLeft;
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
    return absl::NotFoundError(
        absl::StrCat("nobody is in the job as rank ", rank));
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

}  // namespace agg
