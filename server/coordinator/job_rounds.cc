// The second half of a JobState: commits, outcomes and rounds.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/call_validation.h"
#include "server/coordinator/job_state.h"

namespace agg {

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
  const absl::Status status = CheckSeedRole(call.session);
  if (!status.ok()) return status;
  if (seeded_) return std::optional<RoundResult>(SeededResult(call.attempt));
  if (!call.pushed.ok()) return call.pushed;
  // A late repeat of a lower attempt changes nothing.
  if (seed_committed_ != call.session || call.attempt > seed_attempt_) {
    seed_committed_ = call.session;
    seed_attempt_ = call.attempt;
  }
  return std::optional<RoundResult>();
}

OutcomeAnswer JobState::Commit(const CommitCall& call, absl::Time now) {
  absl::Status status = ValidateCommit(call.info);
  if (status.ok()) status = CheckEpoch(call.epoch);
  if (!status.ok()) return status;
  const absl::StatusOr<Member*> member = Find(call.session);
  if (!member.ok()) return member.status();
  if (manifest_.has_value()) {
    status = ValidateAbsentTensors(call.info.absent_tensors, **manifest_);
    if (!status.ok()) return status;
  }
  return call.kind == PushKind::kSeed ? CommitSeed(call)
                                      : CommitGradient(call, **member, now);
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
                                       const Member& member, absl::Time now) {
  if (seeded_ && call.round < version_) {
    return Outcome({call.kind, call.round, call.session, call.attempt});
  }
  const absl::Status status = CheckRound(call, member);
  if (!status.ok()) return status;
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
  if (!call.reported) return std::optional<RoundResult>();
  if (contributions_.empty()) waiting_since_ = now;
  Contribution contribution{call.session, call.attempt, call.row_crc32c,
                            call.info,    now,          call.waves};
  contribution.info.row.rank = member.rank;
  contributions[member.rank] = std::move(contribution);
  return std::optional<RoundResult>();
}

void JobState::NoteWaves(const CompleteRow& row, int waves) {
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
  const absl::StatusOr<int32_t> rank = sessions_.Rank(query.session);
  if (!rank.ok()) return rank.status();
  const absl::Status status = CheckSeedRole(query.session);
  if (!status.ok()) return status;
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
  seeded_ = true;
  seed_committed_.reset();
  seed_attempt_ = attempt;  // a higher one may have been committed meanwhile
  version_ = 0;
  made_ = epoch_;
  history_ = epoch_;
  line_ = epoch_;
  OpenRound(now);
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

std::string JobState::TauReached(double tau) {
  return absl::StrCat("tau (", tau, ") has reached scale_invariant_iterations");
}

std::string JobState::MaxRoundsReached() const {
  return absl::StrCat("max_rounds (", options_.max_rounds, ") is reached");
}

void JobState::FinishRound(RoundResult outcome, absl::Time now,
                           const std::string& failure) {
  std::map<uint64_t, uint32_t> included;
  for (int32_t rank : outcome.ranks) {
    const auto found = contributions_.find(rank);
    if (found != contributions_.end()) {
      included[found->second.session] = found->second.attempt;
      used_rows_[rank] = {found->second.session, outcome.round,
                          found->second.attempt};
    }
  }
  closing_ = false;
  version_ = outcome.version;
  made_ = outcome.epoch;
  OpenRound(now);
  if (!failure.empty()) Fail(failure);
  if (outcome.finished) {
    Finish(TauReached(outcome.tau));
  }
  if (options_.max_rounds > 0 && version_ >= options_.max_rounds) {
    Finish(MaxRoundsReached());
  }
  FinishIfLastLeft();
  outcome.finished = finished_;
  outcomes_.Add(std::move(outcome), std::move(included));
}

}  // namespace agg
