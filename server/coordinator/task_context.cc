// What any task may bring about: an epoch's end, news for shards and workers.
#include "server/coordinator/task_context.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"
#include "server/checkpoint/checkpoint_manifest.h"

namespace agg {

absl::Status CheckQueue(size_t num_waiting) {
  if (num_waiting < kMaxQueuedCalls) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      num_waiting, " calls wait for the coordinator already; try again"));
}

absl::Status TaskContext::Enqueue(std::optional<uint64_t> epoch,
                                  std::function<void()> operation) {
  MutexLock lock(&mutex);
  AGG_RETURN_IF_ERROR(state.CheckAcceptingCalls(epoch));
  AGG_RETURN_IF_ERROR(CheckQueue(operations.size()));
  operations.push_back(std::move(operation));
  changed.NotifyAll();
  return absl::OkStatus();
}

bool TaskContext::RunOperation() {
  std::function<void()> operation;
  {
    MutexLock lock(&mutex);
    if (operations.empty()) return false;
    operation = std::move(operations.front());
    operations.pop_front();
  }
  operation();
  return true;
}

void TaskContext::LoseEpoch(uint64_t epoch, const absl::Status& reason) {
  {
    TellingLock lock(&mutex);
    lock.Tell(state.LoseEpoch(epoch, reason, clock->Now()));
    changed.NotifyAll();
  }
  // A round of that epoch may wait for a process.
  rule_processes.CheckDeadlines();
}

void TaskContext::PropagateLoss() {
  std::optional<EpochLoss> loss;
  {
    MutexLock lock(&mutex);
    loss = state.TakeLoss();
  }
  if (!loss.has_value()) return;
  peers
      .ForEach([&](int, ShardPeer* peer) {
        peer->Lose(loss->epoch, loss->reason);
        return absl::OkStatus();
      })
      .IgnoreError();
}

absl::Status TaskContext::PropagateSession(uint64_t epoch,
                                           const SessionChange& change) {
  return peers.ForEach(
      [&](int, ShardPeer* peer) { return peer->SetSession(epoch, change); });
}

void TaskContext::AnswerWhenKept(const std::string& what,
                                 KeptAnswers::Done done) {
  kept_answers.Add(what, clock->Now(), std::move(done));
  state.RepeatFacts();
}

void TaskContext::DeliverEffects() {
  JobEffects effects;
  DeferredCalls calls;
  uint64_t epoch;
  {
    MutexLock lock(&mutex);
    if (state.job() == nullptr) return;
    effects = state.job()->TakeEffects();
    epoch = state.job()->epoch();
    calls = state.Announce(effects);
  }
  // Shards first: when a worker hears that its session is over, no shard takes
  // its calls any more. The facts come last, since answers go out with them.
  for (const SessionChange& change : effects.changes) {
    const absl::Status status = PropagateSession(epoch, change);
    if (!status.ok()) LoseEpoch(epoch, status);
  }
  SendFacts();
  calls.Run();
  for (const Departure& departure : effects.departures) {
    if (on_lost == nullptr || !IsLoss(departure.kind)) continue;
    on_lost(departure, WhatHappened(departure, options));
  }
}

void TaskContext::SendFacts() {
  std::optional<JobFacts> facts;
  uint64_t epoch = 0;
  {
    MutexLock lock(&mutex);
    facts = state.TakeNewFacts();
    if (!facts.has_value()) return;
    epoch = state.job()->epoch();
    // With the facts, since who comes later waits for later ones.
    kept_answers.Send();
  }
  const absl::Status status = peers.ForEach(
      [&](int, ShardPeer* peer) { return peer->SetFacts(epoch, *facts); });
  if (!status.ok()) LoseEpoch(epoch, status);
  TellingLock lock(&mutex);
  if (status.ok()) {
    lock.Tell(kept_answers.Kept());
  } else if (state.lost_after_end()) {
    lock.Tell(kept_answers.Refuse(status));
  } else {
    // The next epoch gets them again, and then all have their answers.
    state.RepeatFacts();
    kept_answers.NotKept();
  }
}

absl::Status TaskContext::RunPhases(
    const std::function<Phase(int)>& make_phase) {
  return peers.ForEach([&](int ordinal, ShardPeer* peer) {
    const Phase phase = make_phase(ordinal);
    const PhaseWatch::Call call(&phase_watch, ordinal, phase);
    return peer->RunPhase(phase).status();
  });
}

absl::Status TaskContext::RunPhase(const Phase& phase) {
  return RunPhases([&](int) { return phase; });
}

std::string TaskContext::TextOf(JobRecord record) {
  bool cut = false;
  std::string text = JobRecordText(std::move(record), kMaxJobRecordBytes, &cut);
  if (cut && !std::exchange(record_was_cut_, true)) {
    LogError("the job's record is longer than ", kMaxJobRecordBytes,
             " bytes: it has not what shadow rules remember, so that they "
             "start anew after a recovery; use fewer of them");
  }
  return text;
}

}  // namespace agg
