// The beginning of an epoch: one coordinator alone, all shards promise the
// epoch and say what they hold. Then what is left of the job, and how it goes
// on: a failure anywhere leads to a newer epoch, and through the same steps.
#include "server/coordinator/recovery.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/dcheck.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/job_record.h"
#include "server/coordinator/round_reporter.h"
#include "server/round/phase.h"
#include "server/round/session_table.h"
#include "server/round/shard_peer.h"

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
  return record.outcomes.back().epoch;
}

bool AnyCopy(const std::vector<ShardInventory>& inventories) {
  return std::any_of(inventories.begin(), inventories.end(),
                     [](const ShardInventory& inventory) {
                       return !inventory.copies.empty();
                     });
}

}  // namespace

bool Recovery::RunIfDue() {
  std::optional<uint64_t> due;
  {
    MutexLock lock(&context_->mutex);
    due = context_->state.NextEpochIfDue(context_->clock->Now());
    if (!due.has_value()) return false;
  }
  if (StandsBy()) return true;
  // A report may ask for the job's manifest, which is another one then.
  context_->reporter.Flush();
  Attempt attempt;
  attempt.epoch = AbovePromises(*due);
  absl::Status status = AttachAll(&attempt);
  // Once more, after the last promise: with two shards a coordinator that was
  // replaced could have got all promises after one of them was forgotten (P21).
  if (status.ok() && StandsBy()) {
    status = absl::UnavailableError("another coordinator has the job");
  }
  bool awaits_person = false;
  if (status.ok()) {
    status = Recover(&attempt);
    awaits_person = restores_->awaits_person();
  }
  if (!status.ok()) {
    // Who does not get all shards lets go of all: two coordinators that each
    // hold some would wait for each other (P21).
    context_->peers
        .ForEach([](int, ShardPeer* peer) {
          peer->LetGo();
          return absl::OkStatus();
        })
        .IgnoreError();
    MutexLock lock(&context_->mutex);
    if (awaits_person) {
      context_->state.AwaitPerson(std::string(status.message()),
                                  context_->clock->Now());
    } else {
      context_->state.AttachFailed(status);
    }
    return true;
  }
  BeginEpoch(std::move(attempt));
  return true;
}

bool Recovery::StandsBy() {
  const std::string other = find_other_ == nullptr ? "" : find_other_();
  bool superseded = false;
  {
    MutexLock lock(&context_->mutex);
    if (!context_->state.StandBy(other, context_->clock->Now())) return false;
    superseded = context_->state.job() != nullptr;
  }
  if (superseded) Supersede(other);
  return true;
}

void Recovery::Supersede(const std::string& other) {
  {
    MutexLock lock(&context_->mutex);
    if (std::exchange(superseded_, true)) return;
  }
  LogError("superseded: ", other, "; this coordinator ends");
  if (on_superseded_ != nullptr) {
    on_superseded_(absl::AbortedError(absl::StrCat("superseded: ", other)));
  }
}

void Recovery::CheckAddress() {
  {
    MutexLock lock(&context_->mutex);
    if (!context_->state.epoch_on()) return;
  }
  const std::string other = find_other_();
  if (!other.empty()) Supersede(other);
}

uint64_t Recovery::AbovePromises(uint64_t epoch) {
  std::vector<uint64_t> promises(context_->peers.size(), 0);
  context_->peers
      .ForEach([&](int ordinal, ShardPeer* peer) {
        const absl::StatusOr<uint64_t> promise = peer->Promise();
        if (promise.ok()) promises[ordinal] = *promise;
        return promise.status();
      })
      .IgnoreError();
  const uint64_t highest = *std::max_element(promises.begin(), promises.end());
  MutexLock lock(&context_->mutex);
  return context_->state.RaiseEpoch(epoch, highest);
}

absl::Status Recovery::AttachAll(Attempt* attempt) {
  attempt->inventories.resize(context_->peers.size());
  return context_->peers.ForEach([&](int ordinal, ShardPeer* peer) {
    absl::StatusOr<ShardInventory> inventory = peer->Attach(
        attempt->epoch,
        [events = shard_events_, epoch = attempt->epoch](
            const absl::Status& reason) { events->Notify(epoch, reason); });
    const absl::Status status = inventory.status();
    if (status.ok()) attempt->inventories[ordinal] = *std::move(inventory);
    MutexLock lock(&context_->mutex);
    context_->state.NoteAttach(ordinal, status);
    return status;
  });
}

void Recovery::BeginEpoch(Attempt attempt) {
  std::vector<uint64_t> lives;
  std::vector<std::string> sockets;
  std::vector<std::string> region_sockets;
  for (const ShardInventory& inventory : attempt.inventories) {
    lives.push_back(inventory.life);
    sockets.push_back(inventory.local_socket);
    region_sockets.push_back(inventory.region_socket);
  }
  const bool fresh = !attempt.start.has_value();
  std::vector<RoundReport> restored;
  std::optional<VersionId> checkpoint;
  std::string what = "the job begins anew, by a Seed";
  if (!fresh) {
    what = attempt.start->restore;
    restored =
        RestoredReports(attempt.start->record, context_->reporter.newest());
    checkpoint = attempt.start->restored;
  }
  bool finished = false;
  {
    MutexLock lock(&context_->mutex);
    context_->state.SetShardProcesses(std::move(lives), std::move(sockets),
                                      std::move(region_sockets));
    if (!context_->state.BeginEpoch(attempt.epoch, std::move(attempt.start),
                                    context_->clock->Now())) {
      return;
    }
    finished = context_->state.finished();
    // The first one of its own, lest the next start begins with the other job's
    // again.
    if (checkpoint.has_value() && restores_->borrows()) {
      context_->state.checkpoints()->Request(nullptr);
    }
  }
  if (checkpoint.has_value() && on_restored_ != nullptr) {
    on_restored_(*checkpoint);
  }
  if (fresh) context_->reporter.SetShadowRules({});
  for (RoundReport& report : restored) {
    context_->reporter.Add(RoundFacts(), std::move(report));
  }
  restores_->CompleteOrder(what);
  if (!finished) return;
  // Shards that are new do not know it.
  SessionChange end;
  end.finished = true;
  end.remove = true;
  const absl::Status told = context_->PropagateSession(attempt.epoch, end);
  if (!told.ok()) context_->LoseEpoch(attempt.epoch, told);
}

// --- What is left of the job, and how it goes on ----------------------------

absl::Status Recovery::Recover(Attempt* attempt) {
  using Kind = RecoveryDecision::Kind;
  restores_->See(attempt->inventories);
  attempt->decision = restores_->Decide(attempt->epoch, attempt->inventories);
  const RecoveryDecision& decision = attempt->decision;
  if (decision.kind == Kind::kWait)
    return restores_->AwaitPerson(decision.text);
  AGG_RETURN_IF_ERROR(restores_->Begin(attempt->epoch, decision));
  if (decision.kind != Kind::kNothing) Note(decision.text);
  if (decision.anew()) {
    {
      // What operators were told before the first version is on some shard.
      MutexLock lock(&context_->mutex);
      context_->state.AdoptFacts(decision.plans.front().facts, 0);
    }
    if (decision.kind == Kind::kNothing) return absl::OkStatus();
    return RunRecover(*attempt);
  }
  attempt->start.emplace();
  attempt->start->restore = decision.text;
  if (decision.checkpoint.has_value()) {
    const absl::Status loaded = LoadCheckpoint(attempt);
    if (!loaded.ok()) return restores_->Refused(*decision.checkpoint, loaded);
  }
  absl::Status status = GiveManifest(attempt);
  if (status.ok()) status = RunRecover(*attempt);
  if (!status.ok() && decision.checkpoint.has_value()) {
    return restores_->Refused(*decision.checkpoint, status);
  }
  AGG_RETURN_IF_ERROR(status);
  if (decision.fetch) {
    AGG_RETURN_IF_ERROR(RunAt(PhaseKind::kFetch, *attempt));
  }
  AGG_RETURN_IF_ERROR(FillStart(attempt));
  AGG_RETURN_IF_ERROR(GiveSessions(*attempt));
  AGG_RETURN_IF_ERROR(RunAt(PhaseKind::kOpen, *attempt));
  if (decision.checkpoint.has_value()) {
    restores_->NoteLoaded(*decision.checkpoint);
    // Else a folder that lacks the manifest would take its part for garbage.
    if (!restores_->borrows()) SealAgain(*attempt);
  }
  return absl::OkStatus();
}

absl::Status Recovery::LoadCheckpoint(Attempt* attempt) const {
  AGG_ASSIGN_OR_RETURN(
      attempt->manifest_text,
      restores_->ReadCheckpoint(attempt->epoch, *attempt->decision.checkpoint,
                                &attempt->manifest));
  AGG_RETURN_IF_ERROR(TakeFacts(attempt));
  if (attempt->decision.kind != RecoveryDecision::Kind::kRewind ||
      !AnyCopy(attempt->inventories)) {
    return absl::OkStatus();
  }
  // Before any shard gives up what it has in memory for it.
  Phase verify = PhaseOf(PhaseKind::kVerify, attempt->epoch);
  verify.checkpoint = attempt->manifest_text;
  return context_->RunPhase(verify);
}

void Recovery::Note(const std::string& what) {
  LogWarning("recovery: ", what);
  MutexLock lock(&context_->mutex);
  context_->state.NoteRecovery(absl::StrCat("recovering: ", what));
}

absl::Status Recovery::RunRecover(const Attempt& attempt) {
  return context_->RunPhases([&](int ordinal) {
    Phase phase = PhaseOf(PhaseKind::kRecover, attempt.epoch);
    phase.recover = attempt.decision.plans[ordinal];
    if (phase.recover.home == CopyAction::kLoad) {
      phase.checkpoint = attempt.manifest_text;
    }
    return phase;
  });
}

absl::Status Recovery::RunAt(PhaseKind kind, const Attempt& attempt) {
  Phase phase = PhaseOf(kind, attempt.epoch);
  phase.id = attempt.decision.target;
  return context_->RunPhase(phase);
}

void Recovery::SealAgain(const Attempt& attempt) {
  const absl::Status sealed =
      restores_->Seal(attempt.epoch, attempt.manifest_text);
  if (!sealed.ok()) {
    LogWarning(
        "the checkpoint that the job goes on from is not sealed in all "
        "folders: ",
        sealed.message());
  }
}

absl::Status Recovery::GiveManifest(Attempt* attempt) {
  Manifest& manifest = attempt->start->manifest;
  if (!attempt->manifest.tensors.tensors.empty()) {
    manifest = attempt->manifest.tensors;
  } else {
    const std::vector<ShardInventory>& inventories = attempt->inventories;
    const auto source = std::find_if(
        inventories.begin(), inventories.end(),
        [](const ShardInventory& shard) { return shard.has_manifest; });
    if (source == inventories.end()) {
      return absl::InternalError("copies without a manifest");
    }
    ShardPeer* const peer =
        context_->peers.peer(static_cast<int>(source - inventories.begin()));
    AGG_ASSIGN_OR_RETURN(manifest, peer->GetManifest(attempt->epoch));
  }
  // One that has the manifest refuses another one.
  return context_->peers.ForEach([&](int, ShardPeer* peer) {
    return peer->SetManifest(attempt->epoch, manifest);
  });
}

absl::Status Recovery::GiveSessions(const Attempt& attempt) {
  const uint64_t epoch = attempt.epoch;
  const JobStart& start = *attempt.start;
  std::vector<SessionChange> changes;
  for (const auto& [session, rank] : start.over) {
    const absl::Status reason = start.sessions.Rank(session).status();
    SessionChange change;
    change.session = session;
    change.rank = rank;
    change.remove = true;
    change.evicted = absl::IsAborted(reason);
    change.reason = std::string(reason.message());
    changes.push_back(std::move(change));
  }
  for (const MemberState& member : start.members) {
    SessionChange change;
    change.session = member.session;
    change.rank = member.rank;
    change.first_round = member.first_round;
    change.client = member.client;
    change.identity = member.identity;
    changes.push_back(std::move(change));
  }
  JobFacts facts;
  {
    MutexLock lock(&context_->mutex);
    facts = context_->state.facts();
  }
  return context_->peers.ForEach([&](int ordinal, ShardPeer* peer) {
    absl::Status status = peer->SetFacts(epoch, facts);
    for (const SessionChange& change : changes) {
      // As before a Join (P32): memory takes as long as it takes, and the
      // phase kSetSession has a deadline. One row at a time, so that each is
      // progress.
      if (status.ok() && !change.remove) {
        const PhaseWatch::Call call(&context_->phase_watch, ordinal,
                                    "reserve_row", epoch);
        status = peer->ReserveRow(epoch, change.rank, change.session);
      }
      if (status.ok()) status = peer->SetSession(epoch, change);
    }
    return status;
  });
}

// --- What the job goes on from ----------------------------------------------

// Shards keep them with kRecover: should the rewind be cut after that, nothing
// of the past that it undoes comes back.
absl::Status Recovery::TakeFacts(Attempt* attempt) const {
  RecoveryDecision* const decision = &attempt->decision;
  const uint64_t epoch = attempt->epoch;
  AGG_DCHECK(!decision->plans.empty());
  JobFacts facts = decision->plans.front().facts;
  AGG_ASSIGN_OR_RETURN(const JobFacts sealed,
                       ParseFacts(attempt->manifest.facts));
  if (restores_->borrows()) {
    // What was set for another job, and that it has finished, is its own.
    facts = {epoch, facts.number + 1, ""};
  } else if (decision->kind != RecoveryDecision::Kind::kRewind) {
    if (facts < sealed) facts = sealed;
  } else {
    AGG_ASSIGN_OR_RETURN(const JobChanges before, ParseJobChanges(sealed.text));
    std::string text = sealed.text;
    const absl::StatusOr<JobChanges> newest = ParseJobChanges(facts.text);
    if (newest.ok()) {
      text = JobChangesText(AfterRewind(before, *newest));
      if (newest->finished && !before.finished) {
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

absl::Status Recovery::FillStart(Attempt* attempt) {
  const RecoveryDecision& decision = attempt->decision;
  const bool borrows = restores_->borrows();
  JobStart* const start = &*attempt->start;
  start->id = decision.target;
  start->highest_session = HighestSession(attempt->inventories);
  start->members = SurvivingMembers(attempt->inventories);
  bool known = false;
  {
    // Before the record: what rules remember belongs to the rule that is set.
    MutexLock lock(&context_->mutex);
    context_->state.AdoptFacts(decision.plans.front().facts, start->id.version);
    known = context_->state.job() != nullptr;
    if (known) start->sessions = EndedOf(context_->state.job()->sessions());
    AddEvictedTo(context_->state.evicted(), &start->sessions);
  }
  AddEnded(attempt->inventories, &start->sessions);
  TakeOutEnded(attempt->inventories, start);
  if (decision.checkpoint.has_value()) {
    start->restored = *decision.checkpoint;
    start->borrowed = borrows;
    if (start->members.empty() && !known && !borrows) {
      AddMembers(attempt->manifest, start);
    }
  }
  AGG_RETURN_IF_ERROR(FillRecord(attempt));
  // Nobody is in: rounds wait for the expected workers again (P2), so that the
  // first one to join does not train alone.
  if (start->members.empty() && (borrows || restores_->Resumes())) {
    start->record.started = false;
  }
  if (decision.kind == RecoveryDecision::Kind::kRewind) {
    start->record.history = attempt->epoch;
    // What was left is another line: keep does not count it, and removes
    // nothing of it (P29).
    if (restores_->by_order() || borrows) start->record.line = attempt->epoch;
    if (borrows) {
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

absl::Status Recovery::FillRecord(Attempt* attempt) {
  JobStart* const start = &*attempt->start;
  const VersionId& target = attempt->decision.target;
  const bool loads = attempt->decision.checkpoint.has_value();
  // The process that has lived through it knows best, and goes on as it is.
  if (!loads && !context_->options.replicated && GoOnFromMemory(attempt)) {
    return absl::OkStatus();
  }
  const std::string text =
      loads ? attempt->manifest.record : context_->peers.peer(0)->Record();
  if (text.empty() && target.version == 0) {
    // A seed that all have published and nobody was told of.
    start->record.history = target.made;
    start->record.line = target.made;
    context_->reporter.SetShadowRules({});
    return context_->engine.Reset(attempt->epoch, start->manifest);
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
  AGG_RETURN_IF_ERROR(context_->engine.Reset(attempt->epoch, start->manifest));
  CombineOptions combine;
  {
    MutexLock lock(&context_->mutex);
    combine = context_->state.combine();
  }
  context_->engine.Restore(start->record, combine);
  JobRecord shadows;
  context_->engine.FillRecord(&shadows);
  context_->reporter.SetShadowRules(std::move(shadows.state.shadow_rules));
  return absl::OkStatus();
}

// False: the memory is of another version, which a load that was cut replaces.
bool Recovery::GoOnFromMemory(Attempt* attempt) {
  const VersionId& target = attempt->decision.target;
  MutexLock lock(&context_->mutex);
  JobState* const job = context_->state.job();
  if (job == nullptr || !job->seeded()) return false;
  if (!(job->id() == target)) {
    const std::optional<RoundReport> unpublished =
        context_->engine.TakeUnpublished();
    if (!unpublished.has_value() ||
        !(VersionId{unpublished->epoch, unpublished->version} == target)) {
      return false;
    }
    RoundResult outcome = OutcomeOf(*unpublished);
    job->FinishRound(&outcome, context_->clock->Now());
    job->TakeEffects();  // its workers hear of the end when they ask again
    if (job->finished()) context_->state.NoteChange();
  }
  job->FillRecord(&attempt->start->record);
  context_->engine.BeginEpoch(attempt->epoch);
  return true;
}

}  // namespace agg
