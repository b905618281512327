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

// But for those who have gone since: nobody waits for them.
void AddMembers(const CheckpointManifest& checkpoint, JobStart* start) {
  for (const CheckpointMember& member : checkpoint.members) {
    start->highest_session = std::max(start->highest_session, member.session);
    if (start->sessions.Knows(member.session)) continue;
    start->members.push_back({member.rank, member.session, member.first_round,
                              member.client, member.identity});
  }
}

// What this process knows of sessions that are over. Who is alive the shards
// say (P26): a session that none of them has would be alive without a member.
SessionTable EndedOf(const SessionTable& known) {
  SessionTable ended;
  for (const uint64_t session : known.ended()) {
    ended.Begin(session, /*rank=*/-1, /*first_round=*/0, /*client=*/"",
                known.Owner(session).value_or(""));
    ended.End(session, known.Rank(session).status());
  }
  return ended;
}

// Of those whom operators have evicted the facts have the reasons, too.
void AddEvictedTo(const std::vector<EvictedSession>& evicted,
                  SessionTable* sessions) {
  for (const EvictedSession& one : evicted) {
    if (sessions->Knows(one.session)) continue;
    sessions->Begin(one.session, /*rank=*/-1);
    sessions->End(one.session, absl::AbortedError(one.reason));
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

// Shards may not have heard of an end, if the epoch ended at the same time.
void TakeOutEnded(const std::vector<ShardInventory>& inventories,
                  JobStart* start) {
  const auto is_over = [start](const MemberState& member) {
    return start->sessions.Knows(member.session);
  };
  std::vector<MemberState>& in = start->members;
  in.erase(std::remove_if(in.begin(), in.end(), is_over), in.end());
  for (const ShardInventory& inventory : inventories) {
    for (const MemberState& member : inventory.members) {
      if (is_over(member)) start->over[member.session] = member.rank;
    }
  }
}

// The epoch that made the record's version as a round or a seed.
uint64_t MadeOf(const JobRecord& record, uint64_t version) {
  if (version == 0 || record.outcomes.empty()) return record.history;
  return record.outcomes.back().outcome.epoch;
}

}  // namespace

// Shards keep them with kRecover: should the rewind be cut after that, nothing
// of the past that it undoes comes back.
absl::Status Coordinator::TakeFacts(uint64_t epoch,
                                    const CheckpointManifest& checkpoint,
                                    RecoveryDecision* decision) const {
  JobFacts facts = decision->plans.front().facts;
  const absl::StatusOr<JobFacts> sealed = ParseFacts(checkpoint.facts);
  if (!sealed.ok()) return sealed.status();
  if (borrows_) {
    // What was set for another job, and that it has finished, is its own.
    facts = {epoch, facts.number + 1, ""};
  } else if (decision->kind != RecoveryDecision::Kind::kRewind) {
    if (facts < *sealed) facts = *sealed;
  } else {
    const absl::StatusOr<JobChanges> before = ParseJobChanges(sealed->text);
    if (!before.ok()) return before.status();
    std::string text = sealed->text;
    const absl::StatusOr<JobChanges> newest = ParseJobChanges(facts.text);
    if (newest.ok()) {
      text = JobChangesText(AfterRewind(*before, *newest));
      if (newest->finished && !before->finished) {
        LogWarning(
            "recovery: the job goes back to before its end, which is undone "
            "with the rounds: ",
            newest->end_reason);
      }
    } else {
      LogWarning("recovery: what was changed between rounds is lost: ",
                 newest.status().message());
    }
    facts = {epoch, facts.number + 1, std::move(text)};
  }
  for (RecoverPlan& plan : decision->plans) plan.facts = facts;
  return absl::OkStatus();
}

absl::Status Coordinator::FillStart(
    uint64_t epoch, const std::vector<ShardInventory>& inventories,
    const RecoveryDecision& decision, const CheckpointManifest& checkpoint,
    JobStart* start) {
  start->id = decision.target;
  start->highest_session = HighestSession(inventories);
  start->members = SurvivingMembers(inventories);
  bool known = false;
  {
    // Before the record: what rules remember belongs to the rule that is set.
    MutexLock lock(&mutex_);
    state_.AdoptFacts(decision.plans.front().facts, start->id.version);
    known = state_.job() != nullptr;
    if (known) start->sessions = EndedOf(state_.job()->sessions());
    AddEvictedTo(state_.evicted(), &start->sessions);
  }
  AddEnded(inventories, &start->sessions);
  TakeOutEnded(inventories, start);
  if (decision.checkpoint.has_value()) {
    start->restored = *decision.checkpoint;
    start->borrowed = borrows_;
    if (start->members.empty() && !known && !borrows_) {
      AddMembers(checkpoint, start);
    }
  }
  absl::Status status = FillRecord(epoch, decision, checkpoint, start);
  if (!status.ok()) return status;
  // Nobody is in: rounds wait for the expected workers again (P2), so that the
  // first one to join does not train alone.
  if (start->members.empty() && (borrows_ || Resumes())) {
    start->record.started = false;
  }
  if (decision.kind == RecoveryDecision::Kind::kRewind) {
    start->record.history = epoch;
    // What was left is another line: keep does not count it, and removes
    // nothing of it (P29).
    if (by_order_ || borrows_) start->record.line = epoch;
    if (borrows_) {
      start->record.outcomes.clear();
      start->record.used_rows.clear();
    }
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
  const VersionId& target = decision.target;
  const bool loads = decision.checkpoint.has_value();
  // The process that has lived through it knows best, and goes on as it is.
  if (!loads && !options_.replicated && GoOnFromMemory(epoch, target, start)) {
    return absl::OkStatus();
  }
  const std::string text = loads ? checkpoint.record : peers_.peer(0)->Record();
  if (text.empty() && target.version == 0) {
    // A seed that all have published and nobody was told of.
    start->record.history = target.made;
    start->record.line = target.made;
    reporter_.SetShadowRules({});
    return engine_.Reset(epoch, start->manifest);
  }
  absl::StatusOr<JobRecord> record = ParseJobRecord(text);
  if (!record.ok()) {
    return absl::Status(
        record.status().code(),
        absl::StrCat("the job's record: ", record.status().message()));
  }
  start->record = *std::move(record);
  // A rewind that was cut has left it: the epoch that loaded the version began
  // the history, whatever the checkpoint says.
  if (!loads && MadeOf(start->record, target.version) != target.made) {
    start->record.history = target.made;
  }
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

// False: the memory is of another version, which a load that was cut replaces.
bool Coordinator::GoOnFromMemory(uint64_t epoch, const VersionId& target,
                                 JobStart* start) {
  MutexLock lock(&mutex_);
  JobState* const job = state_.job();
  if (job == nullptr || !job->seeded()) return false;
  if (!(job->id() == target)) {
    const std::optional<RoundReport> unpublished = engine_.TakeUnpublished();
    if (!unpublished.has_value() ||
        !(VersionId{unpublished->epoch, unpublished->version} == target)) {
      return false;
    }
    job->FinishRound(OutcomeOf(*unpublished), clock_->Now());
    job->TakeEffects();  // its workers hear of the end when they ask again
    if (job->finished()) state_.NoteChange();
  }
  job->FillRecord(&start->record);
  engine_.BeginEpoch(epoch);
  return true;
}

}  // namespace agg
