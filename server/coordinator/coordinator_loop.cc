// What the coordinator's own thread does, one thing after another: the seed and
// rounds. Joins are in coordinator_joins.cc, ends of sessions in
// coordinator_members.cc, the beginnings of epochs in coordinator_recovery.cc,
// checkpoints in coordinator_checkpoints.cc.
//
// Each step has the same shape: look at the state under the lock, call the
// shards without it, and take the lock again to write down what came of it.
// Meanwhile a shard may be lost, so that the second look starts from nothing.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "server/base/log.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/job_state.h"
#include "server/coordinator/round_outcome.h"

namespace agg {

bool Coordinator::RunOnce() {
  // The shards hear of a lost epoch before anything else is asked of them.
  PropagateLoss();
  SayWhoIsWaitedFor();
  std::shared_ptr<PendingJoin> join;
  if (!threaded_) join = joins_.TryNext();
  if (join != nullptr) ServeJoin(join);
  if (!threaded_) LookAtCheckpoint();
  FactsIfDue();
  if (RunOperation() || join != nullptr || WaveIfDue()) return true;
  if (waved_round_.has_value()) return ExpireIfDue();  // it comes first
  return AttachIfDue() || HandOverIfDue() || ExpireIfDue() ||
         ForgetManifestIfDue() || SeedIfDue() || FailIfDue() ||
         CheckpointIfDue() || RoundIfDue();
}

void Coordinator::Loop() {
  for (;;) {
    while (RunOnce()) {
      MutexLock lock(&mutex_);
      if (stop_) return;
    }
    MutexLock lock(&mutex_);
    if (stop_) return;
    if (!operations_.empty() || state_.has_loss()) continue;
    // A commit may have come between RunOnce and here. Nobody notifies for it
    // again, so NextWake looks at the state itself.
    const absl::Time now = clock_->Now();
    const absl::Time wake = state_.NextWake(now);
    // At most a second, since the wait is measured by another clock.
    if (wake > now) {
      asleep_until_ = wake;
      changed_.WaitFor(&mutex_, std::min(wake - now, absl::Seconds(1)));
      asleep_until_ = absl::InfinitePast();
    }
  }
}

void Coordinator::WakeLoopIfDue() {
  if (state_.NextWake(clock_->Now()) < asleep_until_) changed_.NotifyAll();
}

bool Coordinator::RunOperation() {
  std::function<void()> operation;
  {
    MutexLock lock(&mutex_);
    if (operations_.empty()) return false;
    operation = std::move(operations_.front());
    operations_.pop_front();
  }
  operation();
  return true;
}

// --- Epochs ------------------------------------------------------------------

void Coordinator::LoseEpoch(uint64_t epoch, const absl::Status& reason) {
  DeferredCalls calls;
  {
    MutexLock lock(&mutex_);
    calls = state_.LoseEpoch(epoch, reason, clock_->Now());
    changed_.NotifyAll();
  }
  calls.Run();
}

void Coordinator::NoteComplete(uint64_t epoch, int ordinal,
                               const std::vector<CompleteRow>& rows) {
  MutexLock lock(&mutex_);
  state_.NoteComplete(epoch, ordinal, rows, clock_->Now());
  WakeLoopIfDue();  // it may be what closes the round
}

void Coordinator::SayWhoIsWaitedFor() {
  DeferredCalls calls;
  {
    MutexLock lock(&mutex_);
    calls = state_.SayWhoIsWaitedFor(clock_->Now());
  }
  calls.Run();
}

void Coordinator::PropagateLoss() {
  std::optional<EpochLoss> loss;
  {
    MutexLock lock(&mutex_);
    loss = state_.TakeLoss();
  }
  if (!loss.has_value()) return;
  peers_
      .ForEach([&](int, ShardPeer* peer) {
        peer->Lose(loss->epoch, loss->reason);
        return absl::OkStatus();
      })
      .IgnoreError();
}

// --- The seed and the rounds -------------------------------------------------

bool Coordinator::SeedIfDue() {
  uint64_t epoch;
  uint64_t session;
  uint32_t attempt;
  {
    MutexLock lock(&mutex_);
    if (!state_.CheckAcceptingCalls().ok() ||
        !state_.job()->seed_committed().has_value()) {
      return false;
    }
    epoch = state_.job()->epoch();
    session = *state_.job()->seed_committed();
    attempt = state_.job()->seed_attempt();
  }
  const absl::Status status = engine_.PublishSeed(session, attempt);
  if (!status.ok()) {
    LoseEpoch(epoch, status);
    return true;
  }
  {
    MutexLock lock(&mutex_);
    if (!state_.CheckAcceptingCalls(epoch).ok()) return true;
    state_.job()->FinishSeed(attempt, clock_->Now());
    state_.checkpoints()->Begin(state_.job()->id(), /*restored=*/std::nullopt,
                                clock_->Now());
    LogInfo("seeded: version 0 is published, epoch ", epoch);
    // Checkpoints of what was there before are newer than nothing: one of this
    // job's own, so that the next start finds it.
    if (!SealedCheckpoints(seen_).empty()) {
      state_.checkpoints()->Request(nullptr);
    }
  }
  DeliverEffects();
  return true;
}

bool Coordinator::FailIfDue() {
  {
    MutexLock lock(&mutex_);
    if (!state_.FailJobIfDue(clock_->Now())) return false;
  }
  DeliverEffects();
  return true;
}

bool Coordinator::RoundIfDue() {
  std::optional<ClosingRound> round;
  {
    MutexLock lock(&mutex_);
    round = state_.CloseRoundIfDue(clock_->Now());
    if (!round.has_value()) return false;
  }
  engine_.SetCombination(round->combine);
  if (options_.pipelined) {
    BeginWaves(*std::move(round));
  } else {
    EndRound(*round,
             engine_.Run(round->round, round->contributions, round->offers));
  }
  return true;
}

void Coordinator::EndRound(const ClosingRound& round,
                           absl::StatusOr<RoundReport> report) {
  if (!report.ok()) LoseEpoch(round.epoch, report.status());
  {
    MutexLock lock(&mutex_);
    changed_.NotifyAll();  // Drain may wait for the round's end
    if (!report.ok()) return state_.GiveUpRound();
    if (!state_.FinishRound(round, clock_->Now(), &*report)) return;
  }
  DeliverEffects();
  // Workers have their answers now; statistics and metrics may take their time,
  // while the next round goes on.
  reported_ = {report->epoch, report->version};
  reporter_.Add(engine_.TakeFacts(), *std::move(report));
}

}  // namespace agg
