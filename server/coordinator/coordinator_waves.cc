// The loop's part of a round that is published wave by wave (P43). Between two
// waves it goes on: members come and go.
#include <optional>
#include <utility>

#include "server/coordinator/coordinator.h"

namespace agg {

void Coordinator::BeginWaves(ClosingRound round) {
  engine_.BeginWaves(round.round, round.contributions);
  waved_round_.emplace(std::move(round));
  MutexLock lock(&mutex_);
  state_.BeginWaves(engine_.num_waves());
}

bool Coordinator::WaveIfDue() {
  if (!waved_round_.has_value()) return false;
  WaveStep step;
  {
    MutexLock lock(&mutex_);
    step = state_.NextWave();
    // Its epoch is over: the copies are between two versions (P18).
    if (step.kind == WaveStep::Kind::kGiveUp) {
      state_.GiveUpRound();
      changed_.NotifyAll();  // Drain may wait for the round's end
    }
  }
  switch (step.kind) {
    case WaveStep::Kind::kWait:
      return false;
    case WaveStep::Kind::kGiveUp:
      waved_round_.reset();
      return true;
    case WaveStep::Kind::kRun:
      break;
    case WaveStep::Kind::kFinish:
      EndRound(*std::exchange(waved_round_, std::nullopt),
               engine_.FinishWaves());
      return true;
  }
  const absl::Status status = engine_.RunWave(step.wave, step.ranks);
  if (!status.ok()) {
    EndRound(*std::exchange(waved_round_, std::nullopt), status);
    return true;
  }
  MutexLock lock(&mutex_);
  state_.AdvanceWave(engine_.dropped());
  return true;
}

}  // namespace agg
