// Ends of sessions, which the loop carries out one after another, and what
// shards, workers and waiters hear of who is in. Joins: coordinator_joins.cc.
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/job_state.h"
#include "server/coordinator/job_types.h"

namespace agg {
absl::Status Coordinator::PropagateSession(uint64_t epoch,
                                           const SessionChange& change) {
  return peers_.ForEach(
      [&](int, ShardPeer* peer) { return peer->SetSession(epoch, change); });
}

// --- Ends of sessions --------------------------------------------------------

void Coordinator::DoLeave(uint64_t epoch, uint64_t session,
                          const std::function<void(absl::Status)>& done) {
  absl::Status status;
  bool waits = false;
  {
    MutexLock lock(&mutex_);
    // In a job that is over no round asks any more who is in.
    waits = !state_.finished();
    status = state_.CheckAcceptingCalls(epoch);
    if (status.ok()) status = state_.Leave(session, clock_->Now());
    waits = waits && status.ok();
    if (waits) AnswerWhenKept("the session has left", done);
  }
  DeliverEffects();
  if (!waits) done(status);
}

void Coordinator::DoEvict(
    int32_t rank, const std::string& reason,
    const std::function<void(absl::StatusOr<Eviction>)>& done) {
  absl::StatusOr<Eviction> eviction = absl::UnknownError("");
  {
    MutexLock lock(&mutex_);
    const absl::Status status = state_.CheckAcceptingCalls();
    if (status.ok()) {
      eviction = state_.job()->Evict(rank, reason);
    } else {
      eviction = status;
    }
    if (eviction.ok()) {
      AnswerWhenKept(absl::StrCat("rank ", rank, " is evicted"),
                     [done, eviction](const absl::Status& kept) {
                       done(kept.ok() ? eviction : kept);
                     });
    }
  }
  if (eviction.ok()) {
    DeliverEffects();
  } else {
    done(eviction);
  }
}

void Coordinator::AnswerWhenKept(const std::string& what,
                                 KeptAnswers::Done done) {
  kept_answers_.Add(what, clock_->Now(), std::move(done));
  state_.RepeatFacts();
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
  // its calls any more. The facts come last, since answers go out with them.
  for (const SessionChange& change : effects.changes) {
    const absl::Status status = PropagateSession(epoch, change);
    if (!status.ok()) LoseEpoch(epoch, status);
  }
  FactsIfDue();
  calls.Run();
  for (const Departure& departure : effects.departures) {
    if (on_lost_ == nullptr || !IsLoss(departure.kind)) continue;
    on_lost_(departure, WhatHappened(departure, options_));
  }
}

}  // namespace agg
