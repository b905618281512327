// What a job goes on from after a recovery: who is in, what changed between
// rounds, and what the next rounds need to know of the last ones.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/job_facts.h"
#include "server/coordinator/job_record.h"
#include "server/coordinator/job_start.h"
#include "server/coordinator/job_state.h"
#include "server/coordinator/recovery_plan.h"
#include "server/coordinator/round_outcome.h"

namespace agg {
namespace {

void AddMembers(const CheckpointManifest& checkpoint, JobStart* start) {
  for (const CheckpointMember& member : checkpoint.members) {
    start->members.push_back(
        {member.rank, member.session, member.first_round, member.client});
    start->highest_session = std::max(start->highest_session, member.session);
  }
}

// Who is known to be over stays so: a worker that was frozen gets a new
// session and not the old one, which some shards would refuse.
void AddEnded(const std::vector<ShardInventory>& inventories,
              SessionTable* sessions) {
  for (const ShardInventory& inventory : inventories) {
    for (const uint64_t session : inventory.ended_sessions) {
      if (sessions->Knows(session)) continue;
      sessions->Begin(session, /*rank=*/-1);
      sessions->End(session, absl::NotFoundError("the session is over: Join"));
    }
  }
}

// *facts: the newest that memory has; then those that hold.
absl::Status TakeFacts(uint64_t epoch, const RecoveryDecision& decision,
                       const CheckpointManifest& checkpoint, JobFacts* facts) {
  const absl::StatusOr<JobFacts> sealed = ParseFacts(checkpoint.facts);
  if (!sealed.ok()) return sealed.status();
  if (decision.kind != RecoveryDecision::Kind::kRewind) {
    if (*facts < *sealed) *facts = *sealed;
    return absl::OkStatus();
  }
  // What was changed since then is undone with the rounds (P37).
  if (!facts->text.empty() && facts->text != sealed->text) {
    LogWarning(
        "recovery: what was changed between rounds since the checkpoint "
        "is undone: ",
        facts->text);
  }
  *facts = {epoch, facts->number + 1, sealed->text};
  return absl::OkStatus();
}

}  // namespace

absl::Status Coordinator::FillStart(
    uint64_t epoch, const std::vector<ShardInventory>& inventories,
    const RecoveryDecision& decision, const CheckpointManifest& checkpoint,
    JobStart* start) {
  start->id = decision.target;
  start->highest_session = HighestSession(inventories);
  start->members = SurvivingMembers(inventories);
  JobFacts facts = NewestFacts(inventories);
  bool known = false;
  {
    MutexLock lock(&mutex_);
    known = state_.job() != nullptr;
    if (known) start->sessions = state_.job()->sessions();
  }
  AddEnded(inventories, &start->sessions);
  if (decision.checkpoint.has_value()) {
    start->restored = *decision.checkpoint;
    if (start->members.empty() && !known) AddMembers(checkpoint, start);
    const absl::Status status = TakeFacts(epoch, decision, checkpoint, &facts);
    if (!status.ok()) return status;
  }
  {
    // Before the record: what rules remember belongs to the rule that is set.
    MutexLock lock(&mutex_);
    state_.AdoptFacts(facts, start->id.version);
  }
  absl::Status status = FillRecord(epoch, decision, checkpoint, start);
  if (!status.ok()) return status;
  if (decision.kind == RecoveryDecision::Kind::kRewind) {
    start->record.history = epoch;
    // Who joined later than the version is in already.
    for (MemberState& member : start->members) {
      member.first_round = std::min(member.first_round, start->id.version);
    }
  }
  return absl::OkStatus();
}

absl::Status Coordinator::FillRecord(uint64_t epoch,
                                     const RecoveryDecision& decision,
                                     const CheckpointManifest& checkpoint,
                                     JobStart* start) {
  // The process that has lived through it knows best, and goes on as it is.
  if (!decision.checkpoint.has_value() && !options_.replicated) {
    return GoOnFromMemory(epoch, decision.target, start);
  }
  std::string text = checkpoint.record;
  if (!decision.checkpoint.has_value()) text = peers_.peer(0)->Record();
  absl::StatusOr<JobRecord> record = ParseJobRecord(text);
  if (!record.ok()) {
    return absl::Status(
        record.status().code(),
        absl::StrCat("the job's record: ", record.status().message()));
  }
  start->record = *std::move(record);
  absl::Status status = engine_.Reset(epoch, start->manifest);
  if (!status.ok()) return status;
  CombineOptions combine;
  {
    MutexLock lock(&mutex_);
    combine = state_.combine();
  }
  engine_.Restore(start->record, combine);
  JobRecord shadows;
  engine_.FillRecord(&shadows);
  reporter_.SetShadowRules(std::move(shadows.state.shadow_rules));
  return absl::OkStatus();
}

absl::Status Coordinator::GoOnFromMemory(uint64_t epoch,
                                         const VersionId& target,
                                         JobStart* start) {
  std::optional<RoundReport> unpublished;
  MutexLock lock(&mutex_);
  JobState* const job = state_.job();
  if (job == nullptr || !job->seeded()) {
    return absl::InternalError("copies are left, but nobody knows their job");
  }
  if (!(job->id() == target)) {
    unpublished = engine_.TakeUnpublished();
    if (!unpublished.has_value() ||
        !(VersionId{unpublished->epoch, unpublished->version} == target)) {
      return absl::InternalError(absl::StrCat(
          "shards are at version ", target.version, ", the job at ",
          job->version(), ", and its last round is not known"));
    }
    job->FinishRound(OutcomeOf(*unpublished), clock_->Now());
    job->TakeEffects();  // its workers hear of the end when they ask again
    if (job->finished()) state_.NoteChange();
  }
  job->FillRecord(&start->record);
  engine_.BeginEpoch(epoch);
  return absl::OkStatus();
}

}  // namespace agg
