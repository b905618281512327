// What is left of the job when an epoch begins, and how it goes on (P18, P19,
// P29). A failure anywhere leads to a newer epoch, and through the same steps.
#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "kernels/optimizer_table.h"
#include "server/base/log.h"
#include "server/checkpoint/checkpoint_json.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/job_facts.h"
#include "server/coordinator/job_state.h"
#include "server/coordinator/recovery_plan.h"

namespace agg {
namespace {

bool AnyCopy(const std::vector<ShardInventory>& inventories) {
  return std::any_of(inventories.begin(), inventories.end(),
                     [](const ShardInventory& inventory) {
                       return !inventory.copies.empty();
                     });
}

}  // namespace

// --- What is left of the job -------------------------------------------------

absl::Status Coordinator::Recover(
    uint64_t epoch, const std::vector<ShardInventory>& inventories,
    std::optional<JobStart>* start) {
  See(inventories);
  RecoveryDecision decision = Decide(epoch, inventories);
  if (decision.kind == RecoveryDecision::Kind::kWait) {
    PutOrderBack();
    return AwaitPerson(decision.text);
  }
  const bool anew = decision.kind == RecoveryDecision::Kind::kNothing ||
                    decision.kind == RecoveryDecision::Kind::kUnseeded;
  if (by_order_ && anew) {
    const absl::Status kept = KeepBeginning(epoch);
    if (!kept.ok()) return kept;
  }
  NoteBeginning(epoch, decision);
  if (decision.kind == RecoveryDecision::Kind::kNothing) {
    // What operators were told before the first version is on some shard.
    TakeUnseededFacts(decision);
    return absl::OkStatus();
  }
  Note(decision.text);
  if (decision.kind == RecoveryDecision::Kind::kUnseeded) {
    TakeUnseededFacts(decision);
    return RunRecover(epoch, decision, "");
  }
  start->emplace();
  (*start)->restore = decision.text;
  CheckpointManifest checkpoint;
  std::string text;
  if (decision.checkpoint.has_value()) {
    absl::StatusOr<std::string> read =
        ReadCheckpoint(epoch, *decision.checkpoint, &checkpoint);
    if (!read.ok()) return Refused(*decision.checkpoint, read.status());
    text = *std::move(read);
    const absl::Status facts = TakeFacts(epoch, checkpoint, &decision);
    if (!facts.ok()) return Refused(*decision.checkpoint, facts);
    if (decision.kind == RecoveryDecision::Kind::kRewind &&
        AnyCopy(inventories)) {
      const absl::Status whole = Verify(epoch, text);
      if (!whole.ok()) return Refused(*decision.checkpoint, whole);
    }
  }
  absl::Status status = GiveManifest(epoch, inventories, checkpoint, &**start);
  if (status.ok()) status = RunRecover(epoch, decision, text);
  if (!status.ok() && decision.checkpoint.has_value()) {
    return Refused(*decision.checkpoint, status);
  }
  if (status.ok() && decision.fetch) status = Fetch(epoch, decision.target);
  if (status.ok())
    status = FillStart(epoch, inventories, decision, checkpoint, &**start);
  if (status.ok()) status = GiveSessions(epoch, **start);
  if (status.ok()) status = Open(epoch, decision.target);
  if (status.ok() && decision.checkpoint.has_value()) {
    refused_.erase(*decision.checkpoint);
    // Else a folder that lacks the manifest would take its part for garbage.
    if (!borrows_) SealAgain(epoch, text);
  }
  return status;
}

void Coordinator::TakeUnseededFacts(const RecoveryDecision& decision) {
  MutexLock lock(&mutex_);
  state_.AdoptFacts(decision.plans.front().facts, 0);
}

void Coordinator::Note(const std::string& what) {
  LogWarning("recovery: ", what);
  MutexLock lock(&mutex_);
  state_.NoteRecovery(absl::StrCat("recovering: ", what));
}

absl::Status Coordinator::RunPhases(
    const std::function<Phase(int)>& make_phase) {
  return peers_.ForEach([&](int ordinal, ShardPeer* peer) {
    const Phase phase = make_phase(ordinal);
    const PhaseWatch::Call call(&phase_watch_, ordinal, phase);
    return peer->RunPhase(phase).status();
  });
}

absl::Status Coordinator::RunRecover(uint64_t epoch,
                                     const RecoveryDecision& decision,
                                     const std::string& checkpoint) {
  return RunPhases([&](int ordinal) {
    Phase phase;
    phase.kind = PhaseKind::kRecover;
    phase.epoch = epoch;
    phase.recover = decision.plans[ordinal];
    if (phase.recover.home == CopyAction::kLoad) phase.checkpoint = checkpoint;
    return phase;
  });
}

absl::Status Coordinator::Fetch(uint64_t epoch, const VersionId& target) {
  return RunPhases([&](int) {
    Phase phase;
    phase.kind = PhaseKind::kFetch;
    phase.epoch = epoch;
    phase.id = target;
    return phase;
  });
}

absl::Status Coordinator::Open(uint64_t epoch, const VersionId& target) {
  return RunPhases([&](int) {
    Phase phase;
    phase.kind = PhaseKind::kOpen;
    phase.epoch = epoch;
    phase.id = target;
    return phase;
  });
}

void Coordinator::SealAgain(uint64_t epoch, const std::string& checkpoint) {
  const absl::Status sealed = RunPhases([&](int) {
    Phase phase;
    phase.kind = PhaseKind::kSeal;
    phase.epoch = epoch;
    phase.checkpoint = checkpoint;
    // All: nothing is removed before the job has saved something of its own.
    phase.keep = std::numeric_limits<int>::max();
    phase.line = std::numeric_limits<uint64_t>::max();
    return phase;
  });
  if (!sealed.ok()) {
    LogWarning(
        "the checkpoint that the job goes on from is not sealed in all "
        "folders: ",
        sealed.message());
  }
}

// --- Manifest, sessions, record ----------------------------------------------

absl::StatusOr<std::string> Coordinator::ReadCheckpoint(
    uint64_t epoch, const VersionId& id, CheckpointManifest* manifest) {
  std::vector<CheckpointListing> listings;
  {
    MutexLock lock(&mutex_);
    listings = borrows_ ? seen_of_other_ : seen_;
  }
  absl::Status error;
  for (int shard = 0; shard < peers_.size(); ++shard) {
    const auto& known = listings[shard].states;
    const auto found = std::find_if(
        known.begin(), known.end(),
        [&](const auto& state) { return state.id == id && state.manifest; });
    if (found == known.end()) continue;
    Phase phase;
    phase.kind = PhaseKind::kReadManifest;
    phase.epoch = epoch;
    phase.id = id;
    absl::StatusOr<PhaseResult> result;
    {
      const PhaseWatch::Call call(&phase_watch_, shard, phase);
      result = peers_.peer(shard)->RunPhase(phase);
    }
    if (!result.ok()) {
      // All have the same one: another shard's disk may be better.
      if (error.ok() || absl::IsUnavailable(result.status())) {
        error = absl::Status(result.status().code(),
                             absl::StrCat(peers_.peer(shard)->name(), ": ",
                                          result.status().message()));
      }
      continue;
    }
    absl::StatusOr<CheckpointManifest> parsed =
        ParseCheckpointManifest(result->manifest);
    if (!parsed.ok()) return parsed.status();
    RestoringJob job;
    job.job = borrows_ ? options_.checkpoint.restore_job : options_.job;
    job.optimizer = LineOf(options_.optimizer.kind).name;
    job.num_state_arrays = OptimizerStateArrays(options_.optimizer);
    const absl::Status fits = CheckRestorable(*parsed, job);
    if (!fits.ok()) return fits;
    *manifest = *std::move(parsed);
    return std::move(result->manifest);
  }
  if (!error.ok()) return error;
  return absl::NotFoundError("no shard reports its manifest");
}

absl::Status Coordinator::GiveManifest(
    uint64_t epoch, const std::vector<ShardInventory>& inventories,
    const CheckpointManifest& checkpoint, JobStart* start) {
  if (!checkpoint.tensors.tensors.empty()) {
    start->manifest = checkpoint.tensors;
  } else {
    int source = 0;
    while (source < peers_.size() && !inventories[source].has_manifest) {
      ++source;
    }
    if (source == peers_.size()) {
      return absl::InternalError("copies without a manifest");
    }
    absl::StatusOr<Manifest> manifest = peers_.peer(source)->GetManifest(epoch);
    if (!manifest.ok()) return manifest.status();
    start->manifest = *std::move(manifest);
  }
  return peers_.ForEach([&](int ordinal, ShardPeer* peer) {
    // One that has the manifest refuses another one.
    (void)ordinal;
    return peer->SetManifest(epoch, start->manifest);
  });
}

absl::Status Coordinator::GiveSessions(uint64_t epoch, const JobStart& start) {
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
    MutexLock lock(&mutex_);
    facts = state_.facts();
  }
  return peers_.ForEach([&](int ordinal, ShardPeer* peer) {
    absl::Status status = peer->SetFacts(epoch, facts);
    for (const SessionChange& change : changes) {
      // As before a Join (P32): memory takes as long as it takes, and
      // SetSession has a deadline. One row at a time, so that each is progress.
      if (status.ok() && !change.remove) {
        const PhaseWatch::Call call(&phase_watch_, ordinal, "reserve_row",
                                    epoch);
        status = peer->ReserveRow(epoch, change.rank, change.session);
      }
      if (status.ok()) status = peer->SetSession(epoch, change);
    }
    return status;
  });
}

}  // namespace agg
