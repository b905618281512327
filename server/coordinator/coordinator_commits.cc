// Commits and leaves as a CoordinatorState takes them: commits that come too
// late are noted, those that came with a frame wait for reports (P41).
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "server/coordinator/coordinator_state.h"

namespace agg {
namespace {

CompleteRow RowOf(const CommitCall& call) {
  return {call.session, call.round, call.attempt, 0};
}

}  // namespace

OutcomeAnswer CoordinatorState::Commit(const CommitCall& call, absl::Time now) {
  const std::optional<int32_t> late = job_->TooLate(call);
  if (late.has_value()) arrivals_.NoteLate(*late, call.round, now);
  if (!call.with_frame) return job_->Commit(call, now);
  BeginAwaiting();
  CommitCall awaited = call;
  awaited.reported = awaited_.Reported(call);
  if (options_.pipelined) {
    // It came with the row's first frame: nothing says that it is complete.
    awaited.pushed = absl::OkStatus();
    awaited.waves = awaited_.Waves(RowOf(call));
  }
  OutcomeAnswer answer = job_->Commit(awaited, now);
  if (IsPending(answer) && !awaited.reported && !late.has_value()) {
    awaited.came_at = now;
    awaited_.Add(awaited);
  }
  return answer;
}

absl::Status CoordinatorState::Leave(uint64_t session, absl::Time now) {
  // Who leaves is one of those with whom the job may begin. Else a job whose
  // workers leave before anybody has asked would wait for others for ever.
  if (job_->seeded() && DecideClose(close_options_, Snapshot(), now).start) {
    job_->Start(now);
  }
  return job_->Leave(session);
}

// From a committed seed on the manifest does not change any more, and no row is
// committed before.
void CoordinatorState::BeginAwaiting() {
  const bool fixed = job_->seeded() || job_->seed_committed().has_value();
  if (awaited_began_ || !fixed) return;
  awaited_began_ = true;
  awaited_.Begin(NumReportingShards(**job_->manifest(),
                                    static_cast<int>(shard_lives_.size())),
                 options_.pipelined && NumElements(**job_->manifest()) > 0);
}

void CoordinatorState::NoteComplete(uint64_t epoch, int ordinal,
                                    const std::vector<CompleteRow>& rows,
                                    absl::Time now) {
  // Rows of a round in execution are of interest while this process drains.
  if (!epoch_on_ || !job_->CheckEpoch(epoch).ok()) return;
  BeginAwaiting();
  for (const CompleteRow& row : rows) {
    if (!job_->sessions().Rank(row.session).ok()) continue;
    std::optional<CommitCall> call = awaited_.Report(ordinal, row);
    if (options_.pipelined) NoteWaves(row);
    if (!call.has_value() || draining_) continue;
    call->with_frame = false;
    if (options_.pipelined) call->waves = awaited_.Waves(row);
    call->reported = true;
    // Its caller waits since it came; an error is what that one will hear when
    // the session, the job or the epoch ends.
    const absl::Time complete_at = now - row.ago;
    Commit(*call, std::max(call->came_at, complete_at)).status().IgnoreError();
  }
}

void CoordinatorState::NoteOffer(uint64_t epoch, int ordinal,
                                 std::shared_ptr<const CloseOffer> offer) {
  if (!epoch_on_ || !job_->CheckEpoch(epoch).ok()) return;
  offers_.resize(std::max(offers_.size(), static_cast<size_t>(ordinal) + 1));
  offers_[ordinal] = std::move(offer);
}

CloseOffers CoordinatorState::TakeOffers() {
  CloseOffers offers = std::move(offers_);
  offers_.clear();
  for (auto& offer : offers) {
    if (offer != nullptr && offer->round != job_->version()) offer = nullptr;
  }
  return offers;
}

void CoordinatorState::NoteArrivals(const ClosingRound& round) {
  std::vector<RowArrival> rows;
  for (const auto& [rank, contribution] : round.contributions) {
    rows.push_back({rank, contribution.committed_at});
  }
  arrivals_.NoteRound(round.round, rows);
}

void CoordinatorState::GiveUpAwaited(uint64_t round, absl::Time now) {
  for (const CommitCall& call : awaited_.TakeUpTo(round)) {
    const absl::StatusOr<int32_t> rank = job_->sessions().Rank(call.session);
    if (rank.ok()) arrivals_.NoteLate(*rank, call.round, now);
  }
}

}  // namespace agg
