// Checkpoints (P30): the arrays are copied between two rounds, by the loop; the
// rest is done beside the rounds, by a thread of its own. What goes wrong fails
// the checkpoint and nothing else.
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/optimizer_table.h"
#include "server/base/log.h"
#include "server/checkpoint/checkpoint_limits.h"
#include "server/coordinator/checkpoint_task.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/job_facts.h"
#include "server/coordinator/job_record.h"
#include "server/coordinator/job_state.h"
#include "server/coordinator/round_outcome.h"

namespace agg {

void Coordinator::TakeCheckpoint(
    std::function<void(absl::StatusOr<TakenCheckpoint>)> done) {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    status = state_.CheckAcceptingCalls();
    if (!options_.checkpoint.enabled) {
      status = absl::FailedPreconditionError(
          "checkpoint.path is not configured: no checkpoints are taken");
    } else if (status.ok() && !state_.job()->seeded()) {
      status = absl::FailedPreconditionError(
          "no version is published yet, so there is nothing to keep");
    } else if (status.ok() && !state_.checkpoints()->has_room()) {
      status = absl::ResourceExhaustedError(
          absl::StrCat(CheckpointSchedule::kMaxWaiting,
                       " calls wait for a checkpoint already"));
    }
    if (status.ok()) {
      state_.checkpoints()->Request(std::move(done));
      changed_.NotifyAll();
      return;
    }
  }
  done(status);
}

// --- The loop's half ---------------------------------------------------------

bool Coordinator::BeginCheckpoint(uint64_t* epoch, JobRecord* record,
                                  CheckpointManifest* manifest) {
  MutexLock lock(&mutex_);
  if (!state_.epoch_on() || !state_.job()->seeded()) return false;
  const JobState& job = *state_.job();
  const absl::Time now = clock_->Now();
  CheckpointSchedule* const schedule = state_.checkpoints();
  if (!schedule->Due(job.id(), job.finished(), now)) return false;
  if (schedule->busy()) {
    schedule->Skip(job.id(), now);
    return false;
  }
  schedule->Start(job.id(), now);
  *epoch = job.epoch();
  manifest->id = job.id();
  manifest->history = job.history();
  manifest->tensors = **job.manifest();
  for (const auto& [rank, member] : job.members()) {
    manifest->members.push_back({rank, member.session, member.first_round,
                                 member.client, member.identity});
  }
  manifest->facts = FactsText(state_.facts());
  job.FillRecord(record);
  return true;
}

// Such a version is worth nothing, and would push out one that is. The shards
// look at what they write, too, since an epoch may begin with one.
absl::Status Coordinator::CheckFinite() const {
  MutexLock lock(&mutex_);
  const std::string found = state_.NotFiniteText();
  if (found.empty()) return absl::OkStatus();
  const std::optional<VersionId> newest = state_.checkpoints().newest();
  return absl::FailedPreconditionError(absl::StrCat(
      found, ", so that none is taken of them",
      newest.has_value()
          ? absl::StrCat("; `aggctl restore ", CheckpointFolderName(*newest),
                         "` goes back to version ", newest->version)
          : ""));
}

bool Coordinator::CheckpointIfDue() {
  CheckpointManifest manifest;
  JobRecord record;
  uint64_t epoch = 0;
  if (!BeginCheckpoint(&epoch, &record, &manifest)) return false;
  absl::Status status = CheckFinite();
  if (!status.ok()) {
    EndCheckpoint(status);
    return true;
  }
  status = RunPhases([&](int) {
    Phase phase;
    phase.kind = PhaseKind::kCapture;
    phase.epoch = epoch;
    phase.id = manifest.id;
    return phase;
  });
  if (status.ok()) {
    engine_.FillRecord(&record);
    record.state.shadow_rules = reporter_.ShadowRules();
    manifest.record = TextOf(std::move(record));
  }
  manifest.job = options_.job;
  manifest.num_shards = peers_.size();
  manifest.optimizer = LineOf(options_.optimizer.kind).name;
  manifest.num_state_arrays = OptimizerStateArrays(options_.optimizer);
  manifest.config = options_.checkpoint.config_text;
  MutexLock lock(&mutex_);
  // Also where it has failed: the parts that some shards have are removed
  // beside the rounds, since their disks may hang.
  checkpoint_ = std::make_unique<CheckpointTask>(
      &checkpoint_peers_, epoch, std::move(manifest), options_.checkpoint.keep,
      state_.job()->line(), std::move(status));
  checkpoint_begun_.NotifyAll();
  return true;
}

// --- The half beside the rounds ----------------------------------------------

bool Coordinator::LookAtCheckpoint() {
  CheckpointTask* task = nullptr;
  {
    MutexLock lock(&mutex_);
    task = checkpoint_.get();
  }
  if (task == nullptr) return false;
  // Nobody else ends it, so that it lives as long as this call.
  const auto result = task->Look();
  if (!result.has_value()) return false;
  {
    MutexLock lock(&mutex_);
    checkpoint_ = nullptr;
  }
  EndCheckpoint(*result);
  return true;
}

void Coordinator::EndCheckpoint(const absl::StatusOr<TakenCheckpoint>& result) {
  DeferredCalls calls;
  {
    MutexLock lock(&mutex_);
    calls = state_.checkpoints()->End(result, clock_->Now());
    changed_.NotifyAll();
  }
  calls.Run();
}

void Coordinator::WatchCheckpoints() {
  constexpr absl::Duration kInterval = absl::Milliseconds(50);
  for (;;) {
    {
      MutexLock lock(&mutex_);
      while (!stop_ && checkpoint_ == nullptr) {
        checkpoint_begun_.Wait(&mutex_);
      }
      if (stop_) return;
    }
    if (LookAtCheckpoint()) continue;
    MutexLock lock(&mutex_);
    if (!stop_) checkpoint_begun_.WaitFor(&mutex_, kInterval);
  }
}

// --- The record of each round ------------------------------------------------

std::string Coordinator::MakeRecord(const RoundReport& report,
                                    JobRecord record) {
  std::vector<RecordedOutcome> outcomes;
  MutexLock lock(&mutex_);
  const JobState& job = *state_.job();
  job.FillRecord(&record);
  if (report.version == 0) {  // the seed
    record.history = job.epoch();
    record.line = job.epoch();
    return TextOf(std::move(record));
  }
  RecordedOutcome next;
  next.outcome = OutcomeOf(report);
  for (const int32_t rank : next.outcome.ranks) {
    const auto found = job.contributions().find(rank);
    if (found == job.contributions().end()) continue;
    const Contribution& row = found->second;
    next.included[row.session] = row.attempt;
    record.used_rows[rank] = {row.session, report.round, row.attempt};
  }
  record.outcomes.push_back(std::move(next));
  return TextOf(std::move(record));
}

std::string Coordinator::TextOf(JobRecord record) {
  bool cut = false;
  std::string text = JobRecordText(std::move(record), kMaxJobRecordBytes, &cut);
  if (cut && !std::exchange(record_was_cut_, true)) {
    LogError("the job's record is longer than ", kMaxJobRecordBytes,
             " bytes: it has not what shadow rules remember, so that they "
             "start anew after a recovery; use fewer of them");
  }
  return text;
}

// --- Facts -------------------------------------------------------------------

void Coordinator::FactsIfDue() {
  std::optional<JobFacts> facts;
  uint64_t epoch = 0;
  {
    MutexLock lock(&mutex_);
    facts = state_.TakeNewFacts();
    if (!facts.has_value()) return;
    epoch = state_.job()->epoch();
    // With the facts, since who comes later waits for later ones.
    kept_answers_.Send();
  }
  const absl::Status status = peers_.ForEach(
      [&](int, ShardPeer* peer) { return peer->SetFacts(epoch, *facts); });
  if (!status.ok()) LoseEpoch(epoch, status);
  DeferredCalls calls;
  {
    MutexLock lock(&mutex_);
    if (status.ok()) {
      calls = kept_answers_.Kept();
    } else if (state_.lost_after_end()) {
      calls = kept_answers_.Refuse(status);
    } else {
      // The next epoch gets them again, and then all have their answers.
      state_.RepeatFacts();
      kept_answers_.NotKept();
    }
  }
  calls.Run();
}

}  // namespace agg
