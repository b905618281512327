#include "server/coordinator/coordinator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator_impl.h"

namespace agg {

Coordinator::Impl::Impl(const CoordinatorOptions& options,
                        std::vector<ShardPeer*> peers, const Clock* clock,
                        ReportCallback on_report)
    : options_(options),
      close_options_{options.workers, options.min_workers,
                     options.start_timeout, options.round_timeout},
      clock_(clock),
      on_report_(std::move(on_report)),
      peers_(std::move(peers)),
      engine_(options, &peers_),
      listener_(std::make_shared<LossListener>()),
      no_epoch_(absl::UnavailableError("waiting for all shards")),
      combine_(options.combine) {
  MutexLock lock(&listener_->mutex);
  listener_->impl = this;
}

Coordinator::Impl::~Impl() {
  Drain(absl::InfinitePast());
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  StopListening();
  // Each is refused now, and has to be told so.
  while (RunOperation()) {
  }
}

void Coordinator::Impl::RunAll(const Closures& closures) {
  for (const std::function<void()>& closure : closures) closure();
}

void Coordinator::Impl::Start() {
  thread_ = std::thread([this] { Loop(); });
}

absl::Status Coordinator::Impl::Gate() const {
  if (draining_) {
    return absl::UnavailableError("draining: the coordinator is shutting down");
  }
  return epoch_on_ ? absl::OkStatus() : no_epoch_;
}

absl::Status Coordinator::Impl::Gate(uint64_t epoch) const {
  absl::Status status = Gate();
  if (!status.ok()) return status;
  return state_->CheckEpoch(epoch);
}

void Coordinator::Impl::Join(const JoinCall& call, JoinCallback done) {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    status = Gate();
    if (status.ok()) {
      operations_.push_back([this, call, done] { DoJoin(call, done); });
      changed_.NotifyAll();
      return;
    }
  }
  done(status);
}

absl::StatusOr<JoinResult> Coordinator::Impl::Observe() const {
  MutexLock lock(&mutex_);
  absl::Status status = Gate();
  if (!status.ok()) return status;
  if (!state_->manifest().has_value()) {
    return absl::FailedPreconditionError(
        "no worker has joined yet, so the job has no manifest");
  }
  JoinResult result;
  result.epoch = state_->epoch();
  result.version = state_->version();
  result.seeded = state_->seeded();
  result.finished = state_->finished();
  result.manifest = *state_->manifest();
  result.combination = CombinationOf(state_->version());
  return result;
}

absl::StatusOr<uint64_t> Coordinator::Impl::Attend(uint64_t epoch,
                                                   uint64_t session,
                                                   EventCallback on_event) {
  MutexLock lock(&mutex_);
  absl::Status status = Gate(epoch);
  if (!status.ok()) return status;
  status = state_->Renew(session, clock_->Now());
  if (!status.ok()) return status;
  return attendance_.Open(session, std::move(on_event));
}

absl::StatusOr<uint64_t> Coordinator::Impl::Renew(uint64_t epoch,
                                                  uint64_t session) {
  MutexLock lock(&mutex_);
  absl::Status status = Gate(epoch);
  if (!status.ok()) return status;
  status = state_->Renew(session, clock_->Now());
  if (!status.ok()) return status;
  return state_->version();
}

void Coordinator::Impl::Detach(uint64_t stream) {
  MutexLock lock(&mutex_);
  const std::optional<uint64_t> session = attendance_.Close(stream);
  if (!session.has_value()) return;
  // A session that has ended needs no grace.
  state_->BeginGrace(*session, clock_->Now()).IgnoreError();
  changed_.NotifyAll();
}

void Coordinator::Impl::AddWaiter(Waiter waiter) {
  waiters_.push_back(std::move(waiter));
  changed_.NotifyAll();
}

void Coordinator::Impl::Commit(CommitCall call, OutcomeCallback done) {
  // The shard of this process; others say so when the round closes.
  call.pushed = peers_.peer(0)->CheckPushed(
      {call.epoch, call.session, call.round, call.kind});
  absl::StatusOr<std::optional<RoundResult>> answer = absl::UnknownError("");
  {
    MutexLock lock(&mutex_);
    absl::Status status = Gate(call.epoch);
    if (status.ok()) {
      answer = state_->Commit(call, clock_->Now());
    } else {
      answer = status;
    }
    if (answer.ok() && !answer->has_value()) {
      AddWaiter({call.kind, call.round, call.session, std::move(done)});
      return;
    }
  }
  if (!answer.ok()) {
    done(answer.status());
  } else {
    done(**std::move(answer));
  }
}

void Coordinator::Impl::WaitRound(uint64_t epoch, uint64_t round,
                                  uint64_t session, OutcomeCallback done) {
  absl::StatusOr<std::optional<RoundResult>> answer = absl::UnknownError("");
  {
    MutexLock lock(&mutex_);
    absl::Status status = epoch == 0 ? Gate() : Gate(epoch);
    if (status.ok()) {
      answer = state_->Outcome(round, session);
    } else {
      answer = status;
    }
    if (answer.ok() && !answer->has_value()) {
      AddWaiter({PushKind::kGradient, round, session, std::move(done)});
      return;
    }
  }
  if (!answer.ok()) {
    done(answer.status());
  } else {
    done(**std::move(answer));
  }
}

void Coordinator::Impl::Leave(uint64_t epoch, uint64_t session,
                              std::function<void(absl::Status)> done) {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    status = Gate(epoch);
    if (status.ok()) {
      operations_.push_back([this, epoch, session, done] {
        absl::Status left;
        {
          MutexLock lock(&mutex_);
          left = Gate(epoch);
          if (left.ok()) left = state_->Leave(session);
        }
        DeliverEffects();
        done(left);
      });
      changed_.NotifyAll();
      return;
    }
  }
  done(status);
}

void Coordinator::Impl::Drain(absl::Time deadline) {
  Closures closures;
  {
    MutexLock lock(&mutex_);
    if (!draining_) {
      draining_ = true;
      closures = TellAll(JobEvent{JobEventKind::kDraining,
                                  state_ == nullptr ? 0 : state_->version(),
                                  "the coordinator is shutting down"});
    }
    changed_.NotifyAll();
    while (in_round_ && absl::Now() < deadline) {
      changed_.WaitFor(&mutex_, deadline - absl::Now());
    }
    // A round that has just ended has answers.
    Closures ended = epoch_on_ ? AnswerWaiters() : Closures();
    closures.insert(closures.end(), ended.begin(), ended.end());
    Closures failed = FailWaiters(Gate());
    closures.insert(closures.end(), failed.begin(), failed.end());
  }
  RunAll(closures);
}

// --- The facade --------------------------------------------------------------

Coordinator::Coordinator(const CoordinatorOptions& options,
                         std::vector<ShardPeer*> peers, const Clock* clock,
                         ReportCallback on_report)
    : impl_(std::make_unique<Impl>(options, std::move(peers), clock,
                                   std::move(on_report))) {}
Coordinator::~Coordinator() = default;

void Coordinator::Start() { impl_->Start(); }
bool Coordinator::RunOnce() { return impl_->RunOnce(); }
void Coordinator::Join(const JoinCall& call, JoinCallback done) {
  impl_->Join(call, std::move(done));
}
absl::StatusOr<JoinResult> Coordinator::Observe() const {
  return impl_->Observe();
}
absl::StatusOr<uint64_t> Coordinator::Attend(
    uint64_t epoch, uint64_t session,
    std::function<void(const JobEvent&)> on_event) {
  return impl_->Attend(epoch, session, std::move(on_event));
}
absl::StatusOr<uint64_t> Coordinator::Renew(uint64_t epoch, uint64_t session) {
  return impl_->Renew(epoch, session);
}
void Coordinator::Detach(uint64_t stream) { impl_->Detach(stream); }
void Coordinator::Commit(const CommitCall& call, OutcomeCallback done) {
  impl_->Commit(call, std::move(done));
}
void Coordinator::WaitRound(uint64_t epoch, uint64_t round, uint64_t session,
                            OutcomeCallback done) {
  impl_->WaitRound(epoch, round, session, std::move(done));
}
void Coordinator::Leave(uint64_t epoch, uint64_t session,
                        std::function<void(absl::Status)> done) {
  impl_->Leave(epoch, session, std::move(done));
}
void Coordinator::Drain(absl::Time deadline) { impl_->Drain(deadline); }

}  // namespace agg
