// Who is in: joins, ends of sessions, and telling those whom they concern.
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/coordinator/coordinator_impl.h"

namespace agg {
namespace {

uint64_t NewSession() {
  std::random_device device;
  uint64_t session = 0;
  while (session == 0) {
    session = (static_cast<uint64_t>(device()) << 32) | device();
  }
  return session;
}

}  // namespace

absl::Status Coordinator::Impl::SpreadSession(uint64_t epoch,
                                              const SessionChange& change) {
  return peers_.ForEach(
      [&](int, ShardPeer* peer) { return peer->SetSession(epoch, change); });
}

absl::StatusOr<JoinResult> Coordinator::Impl::TryJoin(const JoinCall& call) {
  uint64_t epoch;
  bool first;
  {
    MutexLock lock(&mutex_);
    absl::Status status = Gate();
    if (status.ok()) status = state_->CheckJoin(call);
    if (!status.ok()) return status;
    epoch = state_->epoch();
    first = !state_->manifest().has_value();
  }
  if (first) {
    absl::Status status = peers_.ForEach([&](int, ShardPeer* peer) {
      return peer->SetManifest(epoch, call.manifest);
    });
    if (status.ok()) status = engine_.Reset(epoch, call.manifest);
    if (!status.ok()) return status;
  }
  SessionChange change;
  {
    MutexLock lock(&mutex_);
    absl::Status status = Gate(epoch);
    if (!status.ok()) return status;
    change = state_->BeginJoin(call, NewSession());
  }
  absl::Status status = SpreadSession(epoch, change);
  MutexLock lock(&mutex_);
  absl::Status gate = Gate(epoch);
  if (!gate.ok()) return gate;
  if (!status.ok()) {
    state_->CancelJoin(change);
    return status;
  }
  JoinResult result = state_->FinishJoin(call, change, clock_->Now());
  result.combination = CombinationOf(result.first_round);
  return result;
}

void Coordinator::Impl::DoJoin(const JoinCall& call, const JoinCallback& done) {
  absl::StatusOr<JoinResult> result = TryJoin(call);
  DeliverEffects();
  if (result.ok()) {
    LogInfo("rank ", call.rank, " joined (", call.client, "), first round ",
            result->first_round);
  } else {
    LogWarning("join of rank ", call.rank, " (", call.client,
               ") refused: ", result.status().ToString());
    ForgetRefusedManifest();
  }
  done(std::move(result));
}

void Coordinator::Impl::ForgetRefusedManifest() {
  uint64_t epoch;
  {
    MutexLock lock(&mutex_);
    if (!Gate().ok() || state_->manifest().has_value()) return;
    epoch = state_->epoch();
  }
  const absl::Status status = peers_.ForEach(
      [&](int, ShardPeer* peer) { return peer->ForgetManifest(epoch); });
  if (!status.ok()) LogWarning("forgetting its manifest: ", status.ToString());
}

bool Coordinator::Impl::ExpireIfDue() {
  {
    MutexLock lock(&mutex_);
    if (!epoch_on_) return false;
    const size_t num_members = state_->members().size();
    state_->ExpireLeases(clock_->Now());
    if (state_->members().size() == num_members) return false;
  }
  DeliverEffects();
  return true;
}

void Coordinator::Impl::DeliverEffects() {
  JobEffects effects;
  Closures closures;
  uint64_t epoch;
  {
    MutexLock lock(&mutex_);
    if (state_ == nullptr) return;
    effects = state_->TakeEffects();
    epoch = state_->epoch();
    for (const auto& [session, event] : effects.events) {
      if (session == 0) {
        Closures told = TellAll(event);
        closures.insert(closures.end(), told.begin(), told.end());
        continue;
      }
      if (!attendance_.Attends(session)) continue;
      closures.push_back([callback = attendance_.CallbackOf(session),
                          event = event] { callback(event); });
    }
    for (const auto& [session, reason] : effects.ended) {
      attendance_.Forget(session);
      for (auto it = waiters_.begin(); it != waiters_.end();) {
        if (it->session != session) {
          ++it;
          continue;
        }
        closures.push_back(
            [done = std::move(it->done), reason = reason] { done(reason); });
        it = waiters_.erase(it);
      }
    }
    Closures answered = AnswerWaiters();
    closures.insert(closures.end(), answered.begin(), answered.end());
  }
  for (const SessionChange& change : effects.changes) {
    absl::Status status = SpreadSession(epoch, change);
    if (!status.ok()) LoseEpoch(epoch, status);
  }
  RunAll(closures);
}

// --- Waiters -----------------------------------------------------------------

Coordinator::Impl::Closures Coordinator::Impl::AnswerWaiters() {
  Closures closures;
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    absl::StatusOr<std::optional<RoundResult>> answer = absl::UnknownError("");
    if (it->kind == PushKind::kSeed) {
      CommitCall call;
      call.epoch = state_->epoch();
      call.session = it->session;
      call.kind = PushKind::kSeed;
      if (state_->seeded()) {
        answer = state_->Commit(call, clock_->Now());
      } else {
        answer = std::optional<RoundResult>();
      }
    } else {
      answer = state_->Outcome(it->round, it->session);
    }
    if (answer.ok() && !answer->has_value()) {
      ++it;
      continue;
    }
    closures.push_back([done = std::move(it->done), answer] {
      if (answer.ok()) {
        done(**answer);
      } else {
        done(answer.status());
      }
    });
    it = waiters_.erase(it);
  }
  return closures;
}

Coordinator::Impl::Closures Coordinator::Impl::FailWaiters(
    const absl::Status& reason) {
  Closures closures;
  for (Waiter& waiter : waiters_) {
    closures.push_back(
        [done = std::move(waiter.done), reason] { done(reason); });
  }
  waiters_.clear();
  return closures;
}

Coordinator::Impl::Closures Coordinator::Impl::TellAll(const JobEvent& event) {
  Closures closures;
  for (const EventCallback& callback : attendance_.AllCallbacks()) {
    closures.push_back([callback, event] { callback(event); });
  }
  return closures;
}

}  // namespace agg
