// Joins, of new workers and of those who come back after an epoch (P26).
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/field_error.h"
#include "server/base/limit_error.h"
#include "server/coordinator/call_validation.h"
#include "server/coordinator/job_state.h"

namespace agg {

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
  manifest_.reset();
  manifest_of_.clear();
}

bool JobState::IsInItsOwnWay(const JoinCall& call) const {
  return manifest_.has_value() && !seeded_ && !seed_committed_.has_value() &&
         members_.size() == 1 && members_.count(call.rank) == 1 &&
         ValidateJoin(call, options_.max_workers).ok() &&
         CheckIdentity(call).ok() && ValidateManifest(*call.manifest).ok() &&
         !CompareManifests(**manifest_, *call.manifest).ok();
}

void JobState::EndFormerSession(const JoinCall& call) {
  const std::string reason =
      absl::StrCat("superseded: another session joins as rank ", call.rank);
  effects_.events.push_back(
      {members_.at(call.rank).session,
       JobEvent{JobEventKind::kSuperseded, version_, reason}});
  RemoveMember(call.rank, DepartureKind::kSuperseded,
               absl::AbortedError(reason));
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
}

}  // namespace agg
