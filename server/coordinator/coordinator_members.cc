// Who is in: joins and ends of sessions, which the loop carries out one after
// another, and what shards, workers and waiters hear of them.
#include <cstddef>
#include <random>
#include <utility>

#include "server/base/log.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/job_state.h"
#include "server/coordinator/job_types.h"

namespace agg {
namespace {

// Random and never 0: a session that a former process handed out must not be
// taken for one of this process.
uint64_t NewSession() {
  std::random_device device;
  uint64_t session = 0;
  while (session == 0) {
    session = (static_cast<uint64_t>(device()) << 32) | device();
  }
  return session;
}

// Not OK when nobody waits for the Join any more. A worker that does not know
// its session could neither work nor leave, and the round would wait for it
// until its lease is over.
absl::Status CheckCaller(const Coordinator::GoneCallback& gone) {
  if (gone == nullptr || !gone()) return absl::OkStatus();
  return absl::CancelledError("the caller of this Join has gone");
}

}  // namespace

absl::Status Coordinator::PropagateSession(uint64_t epoch,
                                           const SessionChange& change) {
  return peers_.ForEach(
      [&](int, ShardPeer* peer) { return peer->SetSession(epoch, change); });
}

// --- Joins -------------------------------------------------------------------

absl::Status Coordinator::PropagateManifest(uint64_t epoch,
                                            const Manifest& manifest) {
  const absl::Status status = peers_.ForEach(
      [&](int, ShardPeer* peer) { return peer->SetManifest(epoch, manifest); });
  return status.ok() ? engine_.Reset(epoch, manifest) : status;
}

// The shards have to agree to a manifest (memory) and to a session before the
// worker is in, so a join takes three looks at the state.
absl::StatusOr<JoinResult> Coordinator::TryJoin(const JoinCall& call,
                                                const GoneCallback& gone) {
  absl::Status caller = CheckCaller(gone);
  if (!caller.ok()) return caller;
  uint64_t epoch;
  bool first;
  {
    MutexLock lock(&mutex_);
    absl::Status status = state_.CheckAcceptingCalls();
    if (status.ok()) status = state_.job()->CheckJoin(call);
    if (!status.ok()) return status;
    epoch = state_.job()->epoch();
    first = !state_.job()->manifest().has_value();
  }
  if (first) {
    const absl::Status status = PropagateManifest(epoch, call.manifest);
    if (!status.ok()) return status;
  }
  // From here on the rank's former session is over.
  caller = CheckCaller(gone);
  if (!caller.ok()) return caller;
  SessionChange change;
  {
    MutexLock lock(&mutex_);
    const absl::Status status = state_.CheckAcceptingCalls(epoch);
    if (!status.ok()) return status;
    change = state_.job()->BeginJoin(call, NewSession());
  }
  absl::Status propagated = PropagateSession(epoch, change);
  propagated.Update(CheckCaller(gone));
  MutexLock lock(&mutex_);
  const absl::Status accepting = state_.CheckAcceptingCalls(epoch);
  if (!accepting.ok()) return accepting;
  if (!propagated.ok()) {
    state_.job()->CancelJoin(change);
    return propagated;
  }
  JoinResult result = state_.job()->FinishJoin(call, change, clock_->Now());
  state_.LogJoin(call, result);
  result.combination = state_.CombinationOf(result.first_round);
  return result;
}

absl::StatusOr<JoinResult> Coordinator::DoJoin(const JoinCall& call,
                                               const GoneCallback& gone) {
  absl::StatusOr<JoinResult> result = TryJoin(call, gone);
  DeliverEffects();
  if (!result.ok()) {
    LogWarning("join of rank ", call.rank, " (", call.client,
               ") refused: ", result.status().ToString());
    ForgetRefusedManifest();
  }
  return result;
}

// One shard may have refused the first manifest after others had set up memory
// for it.
void Coordinator::ForgetRefusedManifest() {
  uint64_t epoch;
  {
    MutexLock lock(&mutex_);
    if (!state_.CheckAcceptingCalls().ok() ||
        state_.job()->manifest().has_value()) {
      return;
    }
    epoch = state_.job()->epoch();
  }
  const absl::Status status = peers_.ForEach(
      [&](int, ShardPeer* peer) { return peer->ForgetManifest(epoch); });
  if (!status.ok()) LogWarning("forgetting its manifest: ", status.ToString());
}

// --- Ends of sessions --------------------------------------------------------

absl::Status Coordinator::DoLeave(uint64_t epoch, uint64_t session) {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    status = state_.CheckAcceptingCalls(epoch);
    if (status.ok()) status = state_.job()->Leave(session);
  }
  DeliverEffects();
  return status;
}

absl::StatusOr<Eviction> Coordinator::DoEvict(int32_t rank,
                                              const std::string& reason) {
  absl::StatusOr<Eviction> eviction = absl::UnknownError("");
  {
    MutexLock lock(&mutex_);
    const absl::Status status = state_.CheckAcceptingCalls();
    if (!status.ok()) return status;
    eviction = state_.job()->Evict(rank, reason);
  }
  if (!eviction.ok()) return eviction;
  DeliverEffects();
  return eviction;
}

bool Coordinator::ExpireIfDue() {
  {
    MutexLock lock(&mutex_);
    // Leases end while draining, too: workers may go as they like.
    if (!state_.epoch_on()) return false;
    const size_t num_members = state_.job()->members().size();
    state_.job()->ExpireLeases(clock_->Now());
    if (state_.job()->members().size() == num_members) return false;
  }
  DeliverEffects();
  return true;
}

void Coordinator::DeliverEffects() {
  JobEffects effects;
  DeferredCalls calls;
  uint64_t epoch;
  {
    MutexLock lock(&mutex_);
    if (state_.job() == nullptr) return;
    effects = state_.job()->TakeEffects();
    epoch = state_.job()->epoch();
    calls = state_.Announce(effects);
  }
  // Shards first: when a worker hears that its session is over, no shard takes
  // its calls any more.
  for (const SessionChange& change : effects.changes) {
    const absl::Status status = PropagateSession(epoch, change);
    if (!status.ok()) LoseEpoch(epoch, status);
  }
  calls.Run();
}

}  // namespace agg
