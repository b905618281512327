// A round that is published wave by wave (P43), as changes of plain state.
#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "server/coordinator/coordinator_state.h"

namespace agg {

void CoordinatorState::BeginWaves(int num_waves) {
  std::vector<WaveRow> rows;
  for (const auto& [rank, row] : job_->contributions()) {
    // Reports may have come before the former round's end, and behind the
    // commit.
    const CompleteRow name{row.session, job_->version(), row.attempt, 0};
    rows.push_back({rank, row.session, row.attempt,
                    std::max(row.waves, awaited_.Waves(name))});
  }
  open_waves_.emplace(job_->version(), num_waves, std::move(rows));
}

OpenWaves::IsAlive CoordinatorState::IsAlive() const {
  return
      [this](uint64_t session) { return job_->sessions().Rank(session).ok(); };
}

WaveStep CoordinatorState::NextWave() const {
  if (!open_waves_.has_value() || !epoch_on_) {
    return {WaveStep::Kind::kGiveUp, 0, {}};
  }
  if (open_waves_->done()) return {WaveStep::Kind::kFinish, 0, {}};
  std::optional<std::vector<int32_t>> ranks =
      open_waves_->RanksIfDue(IsAlive());
  if (!ranks.has_value()) return {};
  return {WaveStep::Kind::kRun, open_waves_->next(), *std::move(ranks)};
}

void CoordinatorState::AdvanceWave(const std::set<int32_t>& dropped) {
  if (open_waves_.has_value()) open_waves_->Advance(dropped);
}

void CoordinatorState::NoteWaves(const CompleteRow& row) {
  const int waves = awaited_.Waves(row);
  job_->NoteWaves(row, waves);
  if (open_waves_.has_value()) open_waves_->Note(row, waves);
}

}  // namespace agg
