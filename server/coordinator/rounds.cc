// Rounds as the loop runs them: the seed, the end of a job below its floor, a
// round in one piece or wave by wave.
#include "server/coordinator/rounds.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/base/log.h"
#include "server/coordinator/job_state.h"
#include "server/coordinator/rule_processes.h"

namespace agg {

Rounds::Rounds(TaskContext* context, Restores* restores)
    : context_(context), restores_(restores) {
  context_->engine.SetMakeRecord(
      [this](const RoundReport& report, JobRecord record) {
        return MakeRecord(report, std::move(record));
      });
  const auto ask =
      [context](const CombineOptions& options, const RuleOptions& rule,
                const CompactedRound& round, absl::Span<const RuleState> states,
                const RoundWords& words) {
        absl::StatusOr<RuleQuestion> question =
            MakeQuestion(options, rule, round, states, words);
        if (!question.ok()) {
          return context->rule_processes.NotAsked(rule.external.name,
                                                  question.status());
        }
        question->shadow = &rule != &options.rule;
        const auto over = [context, epoch = words.epoch] {
          MutexLock lock(&context->mutex);
          return context->state.JobOf(epoch) == nullptr;
        };
        return context->rule_processes.Ask(
            *std::move(question), absl::Seconds(rule.external.timeout_seconds),
            over);
      };
  context_->engine.SetAskRule(ask);
  context_->reporter.SetAskRule(ask);
}

bool Rounds::SeedIfDue() {
  uint64_t epoch;
  uint64_t session;
  uint32_t attempt;
  {
    MutexLock lock(&context_->mutex);
    if (!context_->state.CheckAcceptingCalls().ok() ||
        !context_->state.job()->seed_committed().has_value()) {
      return false;
    }
    epoch = context_->state.job()->epoch();
    session = *context_->state.job()->seed_committed();
    attempt = context_->state.job()->seed_attempt();
  }
  const bool sees_sealed = restores_->SeesSealed();
  const absl::Status status = context_->engine.PublishSeed(session, attempt);
  if (!status.ok()) {
    context_->LoseEpoch(epoch, status);
    return true;
  }
  {
    MutexLock lock(&context_->mutex);
    if (!context_->state.CheckAcceptingCalls(epoch).ok()) return true;
    context_->state.job()->FinishSeed(attempt, context_->clock->Now());
    context_->state.checkpoints()->Begin(context_->state.job()->id(),
                                         /*restored=*/std::nullopt,
                                         context_->clock->Now());
    LogInfo("seeded: version 0 is published, epoch ", epoch);
    // Checkpoints of what was there before are newer than nothing: one of this
    // job's own, so that the next start finds it.
    if (sees_sealed) {
      context_->state.checkpoints()->Request(nullptr);
    }
  }
  context_->DeliverEffects();
  return true;
}

bool Rounds::FailIfDue() {
  {
    MutexLock lock(&context_->mutex);
    if (!context_->state.FailJobIfDue(context_->clock->Now())) return false;
  }
  context_->DeliverEffects();
  return true;
}

bool Rounds::RunIfDue() {
  std::optional<ClosingRound> round;
  {
    MutexLock lock(&context_->mutex);
    round = context_->state.CloseRoundIfDue(context_->clock->Now());
    if (!round.has_value()) return false;
  }
  context_->engine.SetCombination(round->combine);
  if (context_->options.pipelined) {
    BeginWaves(*std::move(round));
  } else {
    EndRound(*round, context_->engine.Run(round->round, round->contributions,
                                          round->offers));
  }
  return true;
}

void Rounds::EndRound(const ClosingRound& round,
                      absl::StatusOr<RoundReport> report) {
  if (!report.ok()) context_->LoseEpoch(round.epoch, report.status());
  {
    MutexLock lock(&context_->mutex);
    context_->changed.NotifyAll();  // Drain may wait for the round's end
    if (!report.ok()) return context_->state.job()->GiveUpRound();
    context_->state.FinishRound(round, context_->clock->Now(), &*report);
  }
  context_->DeliverEffects();
  // Workers have their answers now; statistics and metrics may take their time,
  // while the next round goes on.
  context_->reporter.Add(context_->engine.TakeFacts(), *std::move(report));
}

// --- Waves ------------------------------------------------------------------

void Rounds::BeginWaves(ClosingRound round) {
  context_->engine.BeginWaves(round.round, round.contributions);
  waved_round_.emplace(std::move(round));
  MutexLock lock(&context_->mutex);
  context_->state.job()->BeginWaves(context_->engine.num_waves());
}

bool Rounds::WaveIfDue() {
  if (!waved_round_.has_value()) return false;
  WaveStep step;
  {
    MutexLock lock(&context_->mutex);
    step = context_->state.NextWave();
    // Its epoch is over: the copies are between two versions (P18).
    if (step.kind == WaveStep::Kind::kGiveUp) {
      context_->state.job()->GiveUpRound();
      context_->changed.NotifyAll();  // Drain may wait for the round's end
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
               context_->engine.FinishWaves());
      return true;
  }
  const absl::Status status = context_->engine.RunWave(step.wave, step.ranks);
  if (!status.ok()) {
    EndRound(*std::exchange(waved_round_, std::nullopt), status);
    return true;
  }
  MutexLock lock(&context_->mutex);
  context_->state.job()->AdvanceWave(context_->engine.dropped());
  return true;
}

// --- The record of each round -----------------------------------------------

std::string Rounds::MakeRecord(const RoundReport& report, JobRecord record) {
  MutexLock lock(&context_->mutex);
  const JobState& job = *context_->state.job();
  job.FillRecord(&record);
  if (report.version == 0) {  // the seed
    record.history = job.epoch();
    record.line = job.epoch();
    return context_->TextOf(std::move(record));
  }
  record.outcomes.push_back(OutcomeOf(report));
  job.AddAttempts(&record.outcomes.back(), &record.used_rows);
  return context_->TextOf(std::move(record));
}

}  // namespace agg
