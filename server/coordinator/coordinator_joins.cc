// Joins, in two halves (P32). Memory is reserved on all shards by the joins
// thread, which may take long and harms nobody; then the loop takes the worker
// in, which allocates nothing.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/limit_error.h"
#include "server/base/log.h"
#include "server/coordinator/call_validation.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/job_state.h"
#include "server/coordinator/job_types.h"

namespace agg {
namespace {

absl::Status ManifestGone() {
  return absl::UnavailableError(
      "the manifest of those who were in before has been given up; join again");
}

absl::Status LostMeanwhile() {
  return absl::UnavailableError(
      "a shard was lost while memory was reserved; join again");
}

// Adds what to do to an error of a shard that has no memory.
absl::Status WithAdvice(const absl::Status& status) {
  if (!absl::IsResourceExhausted(status) || IsLimitError(status)) return status;
  return absl::ResourceExhaustedError(absl::StrCat(
      status.message(),
      "; free memory on that host, use more shards, or start fewer workers"));
}

}  // namespace

void Coordinator::Join(JoinCall call, JoinCallback done, GoneCallback gone) {
  // Before the call is queued and logged, which would keep the text.
  absl::Status status = ValidateText("client", call.client);
  if (status.ok()) {
    MutexLock lock(&mutex_);
    status = state_.CheckAcceptingCalls();
    // One that would be refused in its turn waits for nothing, and one that
    // brings the job's manifest waits without a copy of it.
    if (status.ok()) status = CheckManifest(call);
    if (status.ok() && state_.job()->manifest().has_value()) {
      call.manifest = *state_.job()->manifest();
    }
  }
  if (status.ok()) {
    status = joins_.Add(
        std::make_shared<PendingJoin>(std::move(call), done, std::move(gone),
                                      clock_->Now() + JoinQueue::kTimeout));
  }
  if (!status.ok()) done(status);
}

// Another manifest than the job's is refused, unless its only holder is the
// former life of the caller: that one goes, and the Join comes again.
absl::Status Coordinator::CheckManifest(const JoinCall& call) {
  if (state_.job()->IsInItsOwnWay(call)) {
    // While the loop is in a phase such a caller may come again and again.
    if (operations_.size() < kMaxQueuedCalls) {
      operations_.push_back([this, call] { MakeWayFor(call); });
      changed_.NotifyAll();
    }
    return ManifestGone();
  }
  const absl::Status status = state_.job()->CheckJoin(call);
  if (!status.ok()) {
    LogWarning("join of rank ", call.rank, " (", call.client,
               ") refused: ", status.ToString());
  }
  return status;
}

void Coordinator::MakeWayFor(const JoinCall& call) {
  {
    MutexLock lock(&mutex_);
    if (!state_.CheckAcceptingCalls().ok() ||
        !state_.job()->IsInItsOwnWay(call)) {
      return;
    }
    state_.job()->EndFormerSession(call);
  }
  DeliverEffects();
}

// The shards forget it first: until then the job counts as having it, so that
// no Join brings them another one meanwhile.
bool Coordinator::ForgetManifestIfDue() {
  uint64_t epoch;
  {
    MutexLock lock(&mutex_);
    if (!state_.CheckAcceptingCalls().ok() ||
        !state_.job()->ManifestIsUnheld()) {
      return false;
    }
    epoch = state_.job()->epoch();
  }
  const absl::Status status = peers_.ForEach(
      [&](int, ShardPeer* peer) { return peer->ForgetManifest(epoch); });
  if (!status.ok()) {
    LoseEpoch(epoch, status);
    return true;
  }
  MutexLock lock(&mutex_);
  if (!state_.CheckAcceptingCalls(epoch).ok()) return true;
  // Nobody has joined meanwhile: Joins end on this thread.
  state_.job()->ForgetManifest();
  LogInfo(
      "the job is not seeded and nobody is in: its manifest is given up, and "
      "the next worker that joins brings one");
  return true;
}

// --- The joins thread --------------------------------------------------------

void Coordinator::ServeJoins() {
  while (const std::shared_ptr<PendingJoin> join = joins_.Next()) {
    ServeJoin(join);
  }
}

void Coordinator::ServeJoin(const std::shared_ptr<PendingJoin>& join) {
  absl::StatusOr<Reservation> reserved = Reserve(*join);
  absl::Status status = reserved.status();
  if (status.ok()) {
    status =
        Enqueue({}, [this, join, reserved] { FinishJoin(join, *reserved); });
  }
  if (!status.ok()) {
    join->Refuse(status);
    joins_.Served();
  } else if (!reserved->first) {
    joins_.Served();
  }
  // Else FinishJoin says so: until the job has its manifest, another Join could
  // bring another one, and the shards would follow it.
}

absl::StatusOr<Coordinator::Reservation> Coordinator::Reserve(
    const PendingJoin& join) {
  const JoinCall& call = join.call();
  absl::Status status = join.CheckCaller();
  if (!status.ok()) return status;
  Reservation reservation;
  {
    MutexLock lock(&mutex_);
    status = state_.CheckAcceptingCalls();
    if (status.ok()) status = state_.job()->CheckJoin(call);
    // CheckJoin may have found the very manifest that nobody holds any more.
    if (status.ok() && state_.job()->ManifestIsUnheld())
      status = ManifestGone();
    if (!status.ok()) return status;
    reservation.epoch = state_.job()->epoch();
    reservation.first = !state_.job()->manifest().has_value();
  }
  joins_.WaitFor(join_peers_.names());
  status = join_peers_.ForEach([&](int ordinal, ShardPeer* peer) {
    absl::Status answer;
    if (reservation.first) {
      answer = peer->SetManifest(reservation.epoch, *call.manifest);
    }
    if (answer.ok()) answer = peer->ReserveRow(reservation.epoch, call.rank, 0);
    joins_.NoteAnswer(ordinal);
    return answer;
  });
  if (status.ok()) return reservation;
  {
    // Then the error may be that of a shard that has begun another epoch, and
    // no reason for the worker to give up.
    MutexLock lock(&mutex_);
    if (!state_.CheckAcceptingCalls(reservation.epoch).ok()) {
      return LostMeanwhile();
    }
    if (!reservation.first && (!state_.job()->manifest().has_value() ||
                               state_.job()->ManifestIsUnheld())) {
      return ManifestGone();
    }
  }
  if (reservation.first) ForgetManifest(&join_peers_, reservation.epoch);
  return WithAdvice(status);
}

// One shard may have refused the first manifest after others had set up memory
// for it.
void Coordinator::ForgetManifest(PeerGroup* peers, uint64_t epoch) {
  {
    MutexLock lock(&mutex_);
    if (!state_.CheckAcceptingCalls(epoch).ok()) return;
  }
  const absl::Status status = peers->ForEach(
      [&](int, ShardPeer* peer) { return peer->ForgetManifest(epoch); });
  if (!status.ok()) LogWarning("forgetting its manifest: ", status.ToString());
}

// --- The loop ----------------------------------------------------------------

void Coordinator::FinishJoin(const std::shared_ptr<PendingJoin>& join,
                             const Reservation& reservation) {
  // Else it was refused meanwhile. What was reserved stays for the next Join of
  // that rank.
  if (join->BeginJoining()) {
    absl::StatusOr<JoinResult> result = TryJoin(*join, reservation);
    DeliverEffects();
    if (!result.ok()) {
      LogWarning("join of rank ", join->call().rank, " (", join->call().client,
                 ") refused: ", result.status().ToString());
      if (reservation.first) ForgetManifest(&peers_, reservation.epoch);
    }
    join->Answer(std::move(result));
  }
  if (reservation.first) joins_.Served();
}

// A session has to be known to all shards before the worker is in, so a join
// takes two looks at the state.
absl::StatusOr<JoinResult> Coordinator::TryJoin(
    const PendingJoin& join, const Reservation& reservation) {
  const JoinCall& call = join.call();
  const uint64_t epoch = reservation.epoch;
  // After this the rank's former session is over.
  absl::Status status = join.CheckCaller();
  if (status.ok() && reservation.first) {
    status = engine_.Reset(epoch, *call.manifest);
  }
  if (!status.ok()) return status;
  SessionChange change;
  {
    MutexLock lock(&mutex_);
    status = state_.CheckAcceptingCalls();
    if (status.ok() && state_.job()->epoch() != epoch) {
      status = LostMeanwhile();
    }
    if (status.ok()) status = state_.job()->CheckJoin(call);
    // The row that was reserved went with the manifest, or goes with it.
    if (status.ok() && !reservation.first &&
        (!state_.job()->manifest().has_value() ||
         state_.job()->ManifestIsUnheld())) {
      status = ManifestGone();
    }
    if (!status.ok()) return status;
    const absl::StatusOr<uint64_t> session = state_.job()->SessionFor(call);
    if (!session.ok()) return session.status();
    if (state_.job()->Resumes(*session)) return Resume(call);
    change = state_.job()->BeginJoin(call, *session);
  }
  absl::Status propagated = PropagateSession(epoch, change);
  propagated.Update(join.CheckCaller());
  MutexLock lock(&mutex_);
  const absl::Status accepting = state_.CheckAcceptingCalls(epoch);
  if (!accepting.ok()) return accepting;
  if (!propagated.ok()) {
    state_.job()->CancelJoin(change);
    return propagated;
  }
  JoinResult result = state_.job()->FinishJoin(call, change, clock_->Now());
  state_.LogJoin(call, result);
  return Completed(std::move(result));
}

JoinResult Coordinator::Resume(const JoinCall& call) {
  JoinResult result = state_.job()->ResumeJoin(call, clock_->Now());
  LogInfo("rank ", call.rank, " is back (", call.client, ") in epoch ",
          result.epoch, ", at version ", call.resume_version,
          result.rewound ? ", of a past that was given up" : "");
  return Completed(std::move(result));
}

JoinResult Coordinator::Completed(JoinResult result) const {
  result.combination = state_.CombinationOf(result.first_round);
  result.shard_lives = state_.shard_lives();
  result.local_sockets = state_.local_sockets();
  result.region_sockets = state_.region_sockets();
  return result;
}

}  // namespace agg
