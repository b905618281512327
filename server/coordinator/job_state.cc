// Sessions and the job's end, joins, commits, rounds and waves.
#include "server/coordinator/job_state.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/dcheck.h"
#include "server/base/field_error.h"
#include "server/base/status_macros.h"
#include "server/coordinator/coordinator_types.h"

namespace agg {

JobState::JobState(const CoordinatorOptions& options, int num_shards,
                   ArrivalTimes* arrivals, uint64_t epoch, absl::Time now)
    : options_(options),
      close_options_(CloseOptionsOf(options)),
      num_shards_(num_shards),
      arrivals_(arrivals),
      epoch_(epoch),
      opened_at_(now),
      floor_(close_options_),
      skipped_(options.max_skipped_rounds),
      replicas_(options.fail_on_divergence),
      waiting_report_(options.start_warning, options.straggler_warning) {
  arrivals_->BeginEpoch(version_);
}

JobState::JobState(const CoordinatorOptions& options, int num_shards,
                   ArrivalTimes* arrivals, uint64_t epoch, absl::Time now,
                   JobStart start)
    : JobState(options, num_shards, arrivals, epoch, now) {
  seeded_ = true;
  started_ = start.record.started;
  version_ = start.id.version;
  made_ = start.id.made;
  history_ = start.record.history;
  line_ = start.record.line;
  highest_session_ = start.highest_session;
  manifest_ = std::move(start.manifest);
  sessions_ = std::move(start.sessions);
  outcomes_ = KeptOutcomes(std::move(start.record.outcomes));
  used_rows_ = std::move(start.record.used_rows);
  arrivals_->BeginEpoch(version_);
  BeginAwaiting();
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
  CheckInvariants();
}

void JobState::CheckInvariants() const {
#ifndef NDEBUG
  AGG_DCHECK(members_.size() == sessions_.alive().size());
  for (const auto& [rank, member] : members_) {
    AGG_DCHECK(member.rank == rank);
    AGG_DCHECK(sessions_.alive().at(rank) == member.session);
    AGG_DCHECK(newest_sessions_.at(rank) == member.session);
    AGG_DCHECK(member.session <= highest_session_);
  }
  for (const auto& [rank, contribution] : contributions_) {
    AGG_DCHECK(contribution.info.row.rank == rank);
  }
  for (const auto& [rank, contribution] : next_contributions_) {
    AGG_DCHECK(contribution.info.row.rank == rank);
    AGG_DCHECK(seeded_ ? closing_ : seed_committed_.has_value());
  }
  AGG_DCHECK(contributions_.size() >= num_rows_checked_);
  num_rows_checked_ = contributions_.size();
  AGG_DCHECK(contributions_.empty() ==
             (waiting_since_ == absl::InfiniteFuture()));
  AGG_DCHECK(seeded_ || (version_ == 0 && contributions_.empty()));
  AGG_DCHECK(!closing_ || (seeded_ && started_));
  AGG_DCHECK(!open_waves_.has_value() ||
             (closing_ && open_waves_->round() == version_));
  for (const uint64_t session : awaited_.Sessions()) {
    AGG_DCHECK(sessions_.Rank(session).ok());
  }
  AGG_DCHECK(!floor_.below() || (seeded_ && started_));
  AGG_DCHECK(!seeded_ || !seed_committed_.has_value());
  // A seed is committed by a member, who brought the manifest or found it.
  AGG_DCHECK((members_.empty() && !seeded_ && !seed_committed_.has_value()) ||
             manifest_.has_value());
  AGG_DCHECK(members_.empty() || !last_left_);
  AGG_DCHECK(finished_ || (!failed_ && end_reason_.empty()));
#endif
}

void JobState::StayFinished(const std::string& why, bool failed) {
  finished_ = true;
  failed_ = failed;
  end_reason_ = why;
  CheckInvariants();
}

void JobState::StayFinishedIfDue() {
  const std::string limit = LimitReached();
  if (!limit.empty()) StayFinished(limit, /*failed=*/false);
}

std::string JobState::LimitReached() const {
  if (options_.max_rounds > 0 && version_ >= options_.max_rounds) {
    return MaxRoundsReached();
  }
  const double limit = options_.combine.scale_invariant_iterations;
  if (version_ == 0 || limit <= 0.0) return "";
  const std::optional<RoundResult> last = outcomes_.Find(version_ - 1, 0, 0);
  return last.has_value() && last->tau >= limit ? TauReached(last->tau) : "";
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
  AGG_ASSIGN_OR_RETURN(int32_t rank, sessions_.Rank(session));
  return &members_.at(rank);
}

absl::Status JobState::Renew(uint64_t session, absl::Time now) {
  AGG_ASSIGN_OR_RETURN(auto* member, Find(session));
  member->lease_end = now + options_.lease;
  member->disconnected = false;
  CheckInvariants();
  return absl::OkStatus();
}

absl::Status JobState::BeginGrace(uint64_t session, absl::Time now) {
  AGG_ASSIGN_OR_RETURN(auto* member, Find(session));
  absl::Time& lease_end = member->lease_end;
  lease_end = std::min(lease_end, now + options_.reconnect_grace);
  member->disconnected = true;
  CheckInvariants();
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
  awaited_.Forget(session);
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

absl::Status JobState::Leave(uint64_t session, absl::Time now) {
  // Who leaves is one of those with whom the job may begin. Else a job whose
  // workers leave before anybody has asked would wait for others for ever.
  if (seeded_ && Decide(now).start) Start(now);
  AGG_ASSIGN_OR_RETURN(auto* member, Find(session));
  // Shards answer it as an eviction, with ABORTED: NOT_FOUND would ask the
  // worker to join again.
  RemoveMember(member->rank, DepartureKind::kLeft,
               absl::AbortedError("this session has left the job"));
  last_left_ = members_.empty();
  FinishIfLastLeft();
  CheckInvariants();
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
  CheckInvariants();
  return eviction;
}

void JobState::KeepEvicted(const std::vector<EvictedSession>& evicted) {
  for (const EvictedSession& one : evicted) {
    highest_session_ = std::max(highest_session_, one.session);
    if (sessions_.Knows(one.session)) continue;
    sessions_.Begin(one.session, /*rank=*/-1);
    sessions_.End(one.session, absl::AbortedError(one.reason));
  }
  CheckInvariants();
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
  CheckInvariants();
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
  CheckInvariants();
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
  if (closing_) {
    // A wave waits for all its workers that are alive (P43), whatever the
    // policy says.
    waiting.has_round_timeout = true;
    return waiting;
  }
  if (options_.quorum > 0) {
    waiting.num_needed = std::max(
        options_.quorum - static_cast<int32_t>(contributions_.size()), 0);
  }
  waiting.has_round_timeout = options_.round_timeout > absl::ZeroDuration() ||
                              options_.round_timeout_mad > 0.0;
  if (options_.floor_policy != FloorPolicy::kWarn) {
    waiting.floor = floor_.Text();
  }
  return waiting;
}

std::string JobState::SayWhoIsWaitedFor(absl::Time now) {
  // A round in execution waits for workers between two waves alone.
  if (closing_ && (!waving() || NextWave().kind != WaveStep::Kind::kWait)) {
    return "";
  }
  return waiting_report_.Say(waiting(), now);
}

// Joins, of new workers and of those who come back after an epoch (P26).

absl::Status JobState::CheckJoin(const JoinCall& call) const {
  // Who was in when it finished may ask where it stands.
  if (finished_ && !Resumes(call.resume_session)) {
    return FinishedError();
  }
  absl::Status status = ValidateJoin(call, options_.max_workers);
  if (status.ok()) status = CheckIdentity(call);
  if (status.ok()) status = CheckSessions(call);
  return status.ok() ? CheckManifest(call) : status;
}

absl::Status JobState::CheckManifest(const JoinCall& call) const {
  if (!manifest_.has_value()) return ValidateManifest(*call.manifest);
  if (manifest_->Shares(call.manifest)) return absl::OkStatus();
  if (ManifestIsUnheld()) {
    return absl::UnavailableError(
        "the manifest of those who were in before is being given up; join "
        "again");
  }
  const absl::Status status = CompareManifests(**manifest_, *call.manifest);
  if (status.ok() || manifest_of_.empty()) return status;
  return absl::Status(
      status.code(),
      absl::StrCat(status.message(), "; the job's is that of ", manifest_of_,
                   ", which came first",
                   seeded_ || seed_committed_.has_value()
                       ? ""
                       : ", and stays until all who joined with it have left "
                         "or are evicted"));
}

bool JobState::ManifestIsUnheld() const {
  return manifest_.has_value() && members_.empty() && !seeded_ &&
         !seed_committed_.has_value();
}

void JobState::ForgetManifest() {
  AGG_DCHECK(ManifestIsUnheld());
  manifest_.reset();
  manifest_of_.clear();
  CheckInvariants();
}

bool JobState::IsInItsOwnWay(const JoinCall& call) const {
  return manifest_.has_value() && !seeded_ && !seed_committed_.has_value() &&
         members_.size() == 1 && members_.count(call.rank) == 1 &&
         ValidateJoin(call, options_.max_workers).ok() &&
         CheckIdentity(call).ok() && ValidateManifest(*call.manifest).ok() &&
         !CompareManifests(**manifest_, *call.manifest).ok();
}

void JobState::EndFormerSession(const JoinCall& call) {
  AGG_DCHECK(IsInItsOwnWay(call));
  const std::string reason =
      absl::StrCat("superseded: another session joins as rank ", call.rank);
  effects_.events.push_back(
      {members_.at(call.rank).session,
       JobEvent{JobEventKind::kSuperseded, version_, reason}});
  RemoveMember(call.rank, DepartureKind::kSuperseded,
               absl::AbortedError(reason));
  CheckInvariants();
}

absl::Status JobState::CheckIdentity(const JoinCall& call) const {
  const auto member = members_.find(call.rank);
  if (member == members_.end() || call.may_take_over ||
      member->second.identity.empty() ||
      member->second.identity == call.identity) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat("rank is ", call.rank,
                   ", whose session belongs to another identity; "
                   "allowed: that identity, or one with the role admin"));
}

absl::Status JobState::CheckSessions(const JoinCall& call) const {
  int32_t own = 0;
  int32_t all = 0;
  for (const auto& [rank, member] : members_) {
    if (rank == call.rank) continue;  // this Join takes its place
    ++all;
    if (member.identity == call.identity) ++own;
  }
  if (call.max_own_sessions > 0 && own >= call.max_own_sessions) {
    return LimitError(
        "max_sessions", absl::StrCat("identity ", Quoted(call.identity)),
        absl::StrCat(own), absl::StrCat(call.max_own_sessions, " at a time"));
  }
  if (call.max_sessions > 0 && all >= call.max_sessions) {
    return LimitError("max_sessions", "all callers", absl::StrCat(all),
                      absl::StrCat(call.max_sessions, " at a time"));
  }
  return absl::OkStatus();
}

bool JobState::HasContribution(int32_t rank, uint64_t session) const {
  const auto found = contributions_.find(rank);
  return found != contributions_.end() && found->second.session == session;
}

// Sessions of former epochs are below it, so that the highest of a rank is its
// newest.
uint64_t JobState::epoch_first_session() const {
  constexpr uint64_t kPerEpoch = 4096;
  return std::min(epoch_, uint64_t{1} << 51) * kPerEpoch;
}

absl::StatusOr<uint64_t> JobState::SessionFor(const JoinCall& call) const {
  const uint64_t first = epoch_first_session();
  const uint64_t fresh = std::max(highest_session_, first) + 1;
  const uint64_t former = call.resume_session;
  if (former == 0) return fresh;
  const absl::StatusOr<int32_t> rank = sessions_.Rank(former);
  if (rank.ok()) {
    // A rank has one process: this one calls itself something else.
    if (*rank == call.rank) return former;
    return FieldError("resume_session", absl::StrCat(former),
                      absl::StrCat("a session of rank ", call.rank,
                                   "; this one is of rank ", *rank));
  }
  if (absl::IsAborted(rank.status())) return rank.status();
  const auto member = members_.find(call.rank);
  if (member != members_.end() && member->second.session > former) {
    return absl::AbortedError(
        absl::StrCat("superseded: another session joined as rank ", call.rank));
  }
  const auto newest = newest_sessions_.find(call.rank);
  if (newest != newest_sessions_.end() && newest->second > former) return fresh;
  // One that ran out gets a new number, and so does one that nobody can have.
  const bool known = sessions_.Knows(former);
  return known || former >= first ? fresh : former;
}

uint64_t JobState::MadeOf(uint64_t version) const {
  if (version == version_) return made_;
  const std::optional<RoundResult> outcome =
      version == 0 ? std::nullopt : outcomes_.Find(version - 1, 0, 0);
  return outcome.has_value() ? outcome->epoch : 0;
}

bool JobState::Rewound(const JoinCall& call) const {
  if (call.resume_session == 0 || !seeded_) return false;
  if (call.resume_version > version_) return true;
  if (call.resume_made == 0) return false;
  const uint64_t made = MadeOf(call.resume_version);
  return call.resume_made < history_ || (made != 0 && made != call.resume_made);
}

JoinResult JobState::ResultFor(const JoinCall& call,
                               const Member& member) const {
  JoinResult result;
  result.session = member.session;
  result.epoch = epoch_;
  result.version = version_;
  result.made = made_;
  result.rewound = Rewound(call);
  result.seeded = seeded_;
  result.seed_role = !seeded_ && seed_session_ == member.session;
  result.first_round = member.first_round;
  result.committed = contributions_.count(member.rank) != 0;
  result.finished = finished_;
  result.manifest = *manifest_;
  return result;
}

JoinResult JobState::ResumeJoin(const JoinCall& call, absl::Time now) {
  Member& member = members_.at(call.rank);
  member.lease_end = std::max(member.lease_end, now + options_.lease);
  member.disconnected = false;
  member.client = call.client;
  JoinResult result = ResultFor(call, member);
  result.resumed = true;
  CheckInvariants();
  return result;
}

SessionChange JobState::BeginJoin(const JoinCall& call, uint64_t session) {
  SessionChange change;
  change.session = session;
  change.rank = call.rank;
  change.client = call.client;
  change.identity = call.identity;
  highest_session_ = std::max(highest_session_, session);
  newest_sessions_[call.rank] = session;
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
  change.first_round = FirstRound(call, change);
  CheckInvariants();
  return change;
}

uint64_t JobState::FirstRound(const JoinCall& call,
                              const SessionChange& change) const {
  if (contributions_.count(change.rank) != 0) return version_ + 1;
  // It was in before this coordinator knew it: the open round is its own.
  if (call.resume_session == change.session) return version_;
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
  AGG_DCHECK(!sessions_.Knows(change.session));
  if (!manifest_.has_value()) {
    manifest_ = call.manifest;
    manifest_of_ = absl::StrCat("rank ", call.rank, " (", call.client,
                                call.identity.empty() ? "" : ", identity ",
                                call.identity, ")");
  }
  Member member;
  member.rank = call.rank;
  member.session = change.session;
  member.client = call.client;
  member.identity = call.identity;
  member.first_round = FirstRound(call, change);
  member.lease_end = now + options_.lease;
  members_[call.rank] = member;
  sessions_.Begin(change.session, call.rank, member.first_round, member.client,
                  member.identity);
  last_left_ = false;
  JoinResult result = ResultFor(call, member);
  result.replaced = change.replaces;
  CheckInvariants();
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
  // A session that has ended there is not given again: those shards would
  // refuse its calls for ever.
  sessions_.Begin(change.session, change.rank);
  sessions_.End(change.session, absl::NotFoundError(undo.reason));
  if (seed_session_ == change.session) PassSeedRole();
  CheckInvariants();
}

// The second half of a JobState: commits, outcomes and rounds.

// --- Commits ----------------------------------------------------------------

absl::Status JobState::CheckSeedRole(uint64_t session) const {
  if (session == seed_session_) return absl::OkStatus();
  return absl::AlreadyExistsError(
      seeded_ ? absl::StrCat("the job is seeded; Pull its current version ",
                             version_)
              : "another worker has the seed role; Pull version 0 instead");
}

RoundResult JobState::SeededResult(uint32_t attempt) const {
  RoundResult outcome;
  outcome.epoch = history_;
  outcome.kind = OutcomeKind::kSeeded;
  outcome.included = attempt == seed_attempt_;
  outcome.finished = finished_;
  return outcome;
}

OutcomeAnswer JobState::CommitSeed(const CommitCall& call) {
  AGG_RETURN_IF_ERROR(CheckSeedRole(call.session));
  if (seeded_) return std::optional<RoundResult>(SeededResult(call.attempt));
  if (!call.pushed.ok()) return call.pushed;
  if (!seed_committed_.has_value()) BeginAwaiting();
  // A late repeat of a lower attempt changes nothing.
  if (seed_committed_ != call.session || call.attempt > seed_attempt_) {
    seed_committed_ = call.session;
    seed_attempt_ = call.attempt;
  }
  return std::optional<RoundResult>();
}

namespace {

CompleteRow RowOf(const CommitCall& call) {
  return {call.session, call.round, call.attempt, 0};
}

}  // namespace

void JobState::BeginAwaiting() {
  awaited_.Begin(NumReportingShards(**manifest_, num_shards_),
                 options_.pipelined && NumElements(**manifest_) > 0);
}

OutcomeAnswer JobState::Commit(CommitCall call, absl::Time now) {
  const std::optional<int32_t> late = TooLate(call);
  if (late.has_value()) arrivals_->NoteLate(*late, call.round, now);
  const bool reported = !call.with_frame || awaited_.Reported(call);
  if (call.with_frame && options_.pipelined) {
    // It came with the row's first frame: nothing says that it is complete.
    call.pushed = absl::OkStatus();
    call.waves = awaited_.Waves(RowOf(call));
  }
  OutcomeAnswer answer = Take(call, reported, now);
  if (IsPending(answer) && !reported && !late.has_value()) {
    call.came_at = now;
    awaited_.Add(call);
  }
  CheckInvariants();
  return answer;
}

OutcomeAnswer JobState::Take(const CommitCall& call, bool reported,
                             absl::Time now) {
  absl::Status status = ValidateCommit(call.info);
  if (status.ok()) status = CheckEpoch(call.epoch);
  if (!status.ok()) return status;
  AGG_ASSIGN_OR_RETURN(auto* member, Find(call.session));
  if (manifest_.has_value()) {
    status = ValidateAbsentTensors(call.info.absent_tensors, **manifest_);
    if (!status.ok()) return status;
  }
  return call.kind == PushKind::kSeed
             ? CommitSeed(call)
             : CommitGradient(call, *member, reported, now);
}

bool JobState::OnItsWay(uint64_t round) const {
  return seeded_ ? closing_ && round == version_ + 1
                 : seed_committed_.has_value() && round == 0;
}

absl::Status JobState::CheckRound(const CommitCall& call,
                                  const Member& member) const {
  if (finished_) {
    return FinishedError();
  }
  const bool to_come = !seeded_ || call.round > version_;
  if ((to_come && !OnItsWay(call.round)) || member.first_round > call.round) {
    return absl::FailedPreconditionError(absl::StrCat(
        "commit of round ", call.round, "; ",
        seeded_ ? absl::StrCat("current version ", version_,
                               ", this session takes part from round ",
                               member.first_round)
                : "no version is published yet"));
  }
  return absl::OkStatus();
}

OutcomeAnswer JobState::CommitGradient(const CommitCall& call,
                                       const Member& member, bool reported,
                                       absl::Time now) {
  if (seeded_ && call.round < version_) {
    return Outcome({call.kind, call.round, call.session, call.attempt});
  }
  AGG_RETURN_IF_ERROR(CheckRound(call, member));
  // A version can be pulled from the shards shortly before the coordinator
  // knows that all of them have published it: commits of its round may come
  // while it is on its way.
  const bool on_its_way = OnItsWay(call.round);
  std::map<int32_t, Contribution>& contributions =
      on_its_way ? next_contributions_ : contributions_;
  // Late for a round that is closing, a repeat, or an attempt that a higher one
  // has replaced: it waits for the outcome, which says whether its row is in.
  const auto former = contributions.find(member.rank);
  if ((closing_ && !on_its_way) || (former != contributions.end() &&
                                    former->second.attempt >= call.attempt)) {
    return std::optional<RoundResult>();
  }
  if (!call.pushed.ok()) return call.pushed;
  if (!reported) return std::optional<RoundResult>();
  if (!on_its_way && contributions_.empty()) waiting_since_ = now;
  Contribution contribution{call.session, call.attempt, call.row_crc32c,
                            call.info,    now,          call.waves};
  contribution.info.row.rank = member.rank;
  contributions[member.rank] = std::move(contribution);
  return std::optional<RoundResult>();
}

void JobState::NoteComplete(int ordinal, const std::vector<CompleteRow>& rows,
                            bool takes_commits, absl::Time now) {
  for (const CompleteRow& row : rows) {
    if (!sessions_.Rank(row.session).ok()) continue;
    std::optional<CommitCall> call = awaited_.Report(ordinal, row);
    if (options_.pipelined) NoteWaves(row);
    if (!call.has_value() || !takes_commits) continue;
    call->with_frame = false;
    if (options_.pipelined) call->waves = awaited_.Waves(row);
    // Its caller waits since it came; an error is what that one will hear when
    // the session, the job or the epoch ends.
    const absl::Time complete_at = now - row.ago;
    Commit(*call, std::max(call->came_at, complete_at)).status().IgnoreError();
  }
  CheckInvariants();
}

void JobState::NoteOffer(int ordinal, std::shared_ptr<const CloseOffer> offer) {
  offers_.resize(std::max(offers_.size(), static_cast<size_t>(ordinal) + 1));
  offers_[ordinal] = std::move(offer);
}

CloseOffers JobState::TakeOffers() {
  CloseOffers offers = std::exchange(offers_, {});
  for (auto& offer : offers) {
    if (offer != nullptr && offer->round != version_) offer = nullptr;
  }
  return offers;
}

void JobState::NoteWaves(const CompleteRow& row) {
  const int waves = awaited_.Waves(row);
  if (open_waves_.has_value()) open_waves_->Note(row, waves);
  if (!seeded_ || row.round != version_) return;
  for (auto& [rank, contribution] : contributions_) {
    if (contribution.session != row.session ||
        contribution.attempt != row.attempt) {
      continue;
    }
    contribution.waves = std::max(contribution.waves, waves);
  }
}

std::optional<int32_t> JobState::TooLate(const CommitCall& call) const {
  if (call.kind != PushKind::kGradient || !seeded_ || call.epoch != epoch_) {
    return std::nullopt;
  }
  const absl::StatusOr<int32_t> rank = sessions_.Rank(call.session);
  if (!rank.ok() || members_.at(*rank).first_round > call.round) {
    return std::nullopt;
  }
  const bool closing =
      closing_ && call.round == version_ && contributions_.count(*rank) == 0;
  if (call.round >= version_ && !closing) return std::nullopt;
  return *rank;
}

OutcomeAnswer JobState::Answer(const OutcomeQuery& query) const {
  if (query.kind == PushKind::kGradient) {
    return Outcome(query);
  }
  if (!seeded_) return std::optional<RoundResult>();
  // The seeder may have gone since; its waiter has its answer then.
  AGG_RETURN_IF_ERROR(sessions_.Rank(query.session).status());
  AGG_RETURN_IF_ERROR(CheckSeedRole(query.session));
  return std::optional<RoundResult>(SeededResult(query.attempt));
}

OutcomeAnswer JobState::Outcome(const OutcomeQuery& query) const {
  if (!seeded_ || query.round >= version_) {
    if (finished_) return FinishedError();
    // The next version may be on its way (see CommitGradient), so that its
    // round can be waited for. Nobody computes on a later one yet.
    if (query.round > version_ + 1) {
      return absl::FailedPreconditionError(absl::StrCat(
          "wait for round ", query.round, "; current version ", version_));
    }
    return std::optional<RoundResult>();
  }
  std::optional<RoundResult> outcome =
      outcomes_.Find(query.round, query.session, query.attempt);
  if (outcome.has_value()) {
    // What a record kept of the last round was written before its end was.
    if (outcome->version == version_) outcome->finished = finished_;
    return outcome;
  }
  if (WasUsed(query)) {
    // A worker that was away for long must not count its row as lost.
    outcome.emplace();
    outcome->epoch = MadeOf(query.round + 1);  // 0: not known any more
    outcome->round = query.round;
    outcome->version = query.round + 1;
    outcome->included = true;
    outcome->finished = finished_;
    outcome->message =
        "the row was used; what else is said of the round is "
        "no longer kept";
    return outcome;
  }
  return absl::OutOfRangeError(
      absl::StrCat("the outcome of round ", query.round,
                   " is no longer kept; current version ", version_));
}

bool JobState::WasUsed(const OutcomeQuery& query) const {
  return query.session != 0 &&
         std::any_of(
             used_rows_.begin(), used_rows_.end(), [&](const auto& entry) {
               const UsedRow& row = entry.second;
               return row.session == query.session &&
                      row.round == query.round && row.attempt == query.attempt;
             });
}

void JobState::FinishSeed(uint32_t attempt, absl::Time now) {
  AGG_DCHECK(!seeded_ && seed_committed_.has_value());
  seeded_ = true;
  seed_committed_.reset();
  seed_attempt_ = attempt;  // a higher one may have been committed meanwhile
  version_ = 0;
  made_ = epoch_;
  history_ = epoch_;
  line_ = epoch_;
  OpenRound(now);
  CheckInvariants();
}

// --- Rounds -----------------------------------------------------------------

int32_t JobState::NumIn() const {
  const auto gone = std::count_if(
      contributions_.begin(), contributions_.end(),
      [this](const auto& entry) { return members_.count(entry.first) == 0; });
  return static_cast<int32_t>(members_.size()) + static_cast<int32_t>(gone);
}

CloseSnapshot JobState::close_snapshot() const {
  CloseSnapshot snapshot;
  snapshot.started = started_;
  snapshot.num_live = static_cast<int32_t>(members_.size());
  snapshot.num_in = NumIn();
  snapshot.all_left = last_left_;
  snapshot.num_contributions = static_cast<int32_t>(contributions_.size());
  for (const auto& [rank, member] : members_) {
    if (member.first_round > version_) {
      ++snapshot.num_joining;
      continue;
    }
    ++snapshot.num_members;
    if (contributions_.count(rank) == 0) ++snapshot.num_waiting;
  }
  // A row whose worker has gone counts as a member's: so does a row whose rank
  // has a new session that waits for the next round.
  for (const auto& [rank, contribution] : contributions_) {
    const auto member = members_.find(rank);
    if (member == members_.end() || member->second.first_round > version_) {
      ++snapshot.num_members;
    }
  }
  snapshot.opened_at = opened_at_;
  snapshot.waiting_since = waiting_since_;
  snapshot.usual_timeout = arrivals_->Timeout();
  snapshot.below_floor_since = floor_.below_since();
  return snapshot;
}

bool JobState::FailIfDue(absl::Time now) {
  if (!seeded_ || finished_) return false;
  floor_.Note(close_snapshot(), now);
  if (!Decide(now).fail) return false;
  Fail(floor_.FailureText());
  return true;
}

std::optional<ClosingRound> JobState::CloseIfDue(absl::Time now) {
  if (!seeded_ || finished_) return std::nullopt;
  const CloseDecision decision = Decide(now);
  if (decision.start) Start(now);
  if (!decision.close) return std::nullopt;
  closing_ = true;
  CheckInvariants();
  return ClosingRound{epoch_,           version_,     contributions_,
                      now - opened_at_, TakeOffers(), CombineOptions()};
}

void JobState::Start(absl::Time now) {
  if (started_) return;
  started_ = true;
  if (!contributions_.empty()) waiting_since_ = now;
}

void JobState::GiveUpRound() {
  closing_ = false;
  open_waves_.reset();
  next_contributions_.clear();
  CheckInvariants();
}

std::vector<int32_t> JobState::MissingRanks() const {
  if (open_waves_.has_value() && !open_waves_->done()) {
    return open_waves_->Missing(IsAlive());
  }
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
  num_rows_checked_ = 0;
  opened_at_ = now;
  waiting_since_ = contributions_.empty() ? absl::InfiniteFuture() : now;
}

std::string JobState::TauReached(double tau) {
  return absl::StrCat("tau (", tau, ") has reached scale_invariant_iterations");
}

std::string JobState::MaxRoundsReached() const {
  return absl::StrCat("max_rounds (", options_.max_rounds, ") is reached");
}

void JobState::AddAttempts(RoundResult* outcome,
                           std::map<int32_t, UsedRow>* used_rows) const {
  for (const int32_t rank : outcome->ranks) {
    const auto found = contributions_.find(rank);
    if (found == contributions_.end()) continue;
    const Contribution& row = found->second;
    outcome->attempts.emplace_back(row.session, row.attempt);
    (*used_rows)[rank] = {row.session, outcome->round, row.attempt};
  }
  std::sort(outcome->attempts.begin(), outcome->attempts.end());
}

std::string JobState::WatchRound(const RoundReport& report, absl::Time now) {
  std::vector<RowArrival> rows;
  for (const auto& [rank, contribution] : contributions_) {
    rows.push_back({rank, contribution.committed_at});
  }
  arrivals_->NoteRound(report.round, rows);
  // The round has ended without these.
  for (const CommitCall& call : awaited_.TakeUpTo(report.round)) {
    const absl::StatusOr<int32_t> rank = sessions_.Rank(call.session);
    if (rank.ok()) arrivals_->NoteLate(*rank, call.round, now);
  }
  skipped_.Note(report);
  replicas_.Note(report.round, GroupReplicas(report));
  const std::string failure = skipped_.FailureText();
  return failure.empty() ? replicas_.FailureText() : failure;
}

void JobState::FinishRound(RoundResult* outcome, absl::Time now,
                           const std::string& failure) {
  AGG_DCHECK(outcome->version > version_);
  AddAttempts(outcome, &used_rows_);
  closing_ = false;
  open_waves_.reset();
  version_ = outcome->version;
  made_ = outcome->epoch;
  OpenRound(now);
  if (!failure.empty()) Fail(failure);
  if (outcome->finished) {
    Finish(TauReached(outcome->tau));
  }
  if (options_.max_rounds > 0 && version_ >= options_.max_rounds) {
    Finish(MaxRoundsReached());
  }
  FinishIfLastLeft();
  outcome->finished = finished_;
  outcomes_.Add(*outcome);
  CheckInvariants();
}

// --- A round that is published wave by wave (P43) ---------------------------

void JobState::BeginWaves(int num_waves) {
  std::vector<WaveRow> rows;
  for (const auto& [rank, row] : contributions_) {
    // Reports may have come before the former round's end, and behind the
    // commit.
    const CompleteRow name{row.session, version_, row.attempt, 0};
    rows.push_back({rank, row.session, row.attempt,
                    std::max(row.waves, awaited_.Waves(name))});
  }
  open_waves_.emplace(version_, num_waves, std::move(rows));
  CheckInvariants();
}

OpenWaves::IsAlive JobState::IsAlive() const {
  return [this](uint64_t session) { return sessions_.Rank(session).ok(); };
}

WaveStep JobState::NextWave() const {
  AGG_DCHECK(open_waves_.has_value());
  if (open_waves_->done()) return {WaveStep::Kind::kFinish, 0, {}};
  std::optional<std::vector<int32_t>> ranks =
      open_waves_->RanksIfDue(IsAlive());
  if (!ranks.has_value()) return {};
  return {WaveStep::Kind::kRun, open_waves_->next(), *std::move(ranks)};
}

void JobState::AdvanceWave(const std::set<int32_t>& dropped) {
  AGG_DCHECK(open_waves_.has_value());
  open_waves_->Advance(dropped);
}

}  // namespace agg
