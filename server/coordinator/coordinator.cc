// Construction, and the calls that come from any thread. What changes
// membership is queued for the loop; the rest is done here, under the lock.
#include "server/coordinator/coordinator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/coordinator/call_validation.h"
#include "server/coordinator/job_state.h"
#include "server/coordinator/recent_rounds.h"

namespace agg {

Coordinator::Coordinator(const CoordinatorOptions& options,
                         std::vector<ShardPeer*> peers, const Clock* clock,
                         ReportCallback on_report, FindOther find_other,
                         const PeerGroup::Order& order)
    : options_(options),
      clock_(clock),
      find_other_(std::move(find_other)),
      peers_(peers, order),
      join_peers_(peers, order),
      checkpoint_peers_(std::move(peers), order),
      phase_watch_(clock, options.phase_timeout, peers_.names()),
      engine_(options, &peers_, &phase_watch_),
      reporter_(std::move(on_report)),
      loss_listener_(std::make_shared<LossListener>(
          [this](uint64_t epoch, const absl::Status& reason) {
            LoseEpoch(epoch, reason);
          },
          [this](uint64_t epoch, int ordinal) { NoteDraining(epoch, ordinal); },
          [this](uint64_t epoch, int ordinal,
                 const std::vector<CompleteRow>& rows) {
            NoteComplete(epoch, ordinal, rows);
          },
          [this](uint64_t epoch, int ordinal,
                 std::shared_ptr<const CloseOffer> offer) {
            MutexLock lock(&mutex_);
            state_.NoteOffer(epoch, ordinal, std::move(offer));
          })),
      state_(options) {
  engine_.SetMakeRecord([this](const RoundReport& report, JobRecord record) {
    return MakeRecord(report, std::move(record));
  });
  for (int ordinal = 0; ordinal < static_cast<int>(peers_.size()); ++ordinal) {
    peers_.peer(ordinal)->SetOnDraining(
        [listener = loss_listener_, ordinal](uint64_t epoch) {
          listener->NotifyDraining(epoch, ordinal);
        });
    peers_.peer(ordinal)->SetOnComplete(
        [listener = loss_listener_, ordinal](
            uint64_t epoch, const std::vector<CompleteRow>& rows) {
          listener->NotifyComplete(epoch, ordinal, rows);
        });
    peers_.peer(ordinal)->SetOnOffer(
        [listener = loss_listener_, ordinal](
            uint64_t epoch, std::shared_ptr<const CloseOffer> offer) {
          listener->NotifyOffer(epoch, ordinal, std::move(offer));
        });
  }
}

Coordinator::~Coordinator() {
  DeferredCalls refused;
  Drain(absl::InfinitePast());
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    changed_.NotifyAll();
    stopped_.NotifyAll();
    checkpoint_begun_.NotifyAll();
  }
  joins_.Stop();
  for (std::thread* thread : {&thread_, &joins_thread_, &deadlines_thread_,
                              &checkpoints_thread_, &address_thread_}) {
    if (thread->joinable()) thread->join();
  }
  {
    MutexLock lock(&mutex_);
    const absl::Status stops = state_.CheckAcceptingCalls();
    refused = state_.checkpoints()->Refuse(stops);
    refused.Add(kept_answers_.Refuse(stops));
  }
  refused.Run();
  EndOrder(absl::UnavailableError("the coordinator is shutting down"));
  reporter_.Flush();  // while what it calls back to can still ask this object
  loss_listener_->Stop();
  // Each queued call is refused now; its caller has to hear of it.
  for (;;) {
    const bool called = RunOperation();
    const std::shared_ptr<PendingJoin> join = joins_.TryNext();
    if (join != nullptr) {
      ServeJoin(join);
    } else if (!called) {
      return;
    }
  }
}

void Coordinator::Start() {
  threaded_ = true;
  joins_thread_ = std::thread([this] { ServeJoins(); });
  deadlines_thread_ = std::thread([this] { CheckDeadlinesEachSecond(); });
  checkpoints_thread_ = std::thread([this] { WatchCheckpoints(); });
  if (find_other_ != nullptr) {
    address_thread_ = std::thread([this] { CheckAddressEachSecond(); });
  }
  reporter_.Start();
  thread_ = std::thread([this] { Loop(); });
}

// --- Deadlines ---------------------------------------------------------------

void Coordinator::CheckDeadlines() {
  joins_.Expire(clock_->Now());
  ExpireKeptAnswers();
  ExpireOrder();
  std::vector<uint64_t> progress;
  for (int i = 0; i < peers_.size(); ++i) {
    progress.push_back(peers_.peer(i)->Progress());
  }
  for (const LatePhase& late : phase_watch_.TakeLate(progress)) {
    const absl::Status reason = absl::UnavailableError(late.text);
    // The epoch's end is logged with the reason. A shard of this process cannot
    // be given up: the loop stays in it until the process ends.
    LoseEpoch(late.epoch, reason);
    peers_.peer(late.shard)->GiveUp(late.epoch, reason);
  }
}

void Coordinator::ExpireKeptAnswers() {
  DeferredCalls calls;
  {
    MutexLock lock(&mutex_);
    const absl::Status accepting = state_.CheckAcceptingCalls();
    calls = kept_answers_.Expire(
        clock_->Now(), accepting.ok() ? "a shard has not answered"
                                      : std::string(accepting.message()));
  }
  calls.Run();
}

void Coordinator::CheckDeadlinesEachSecond() {
  for (;;) {
    CheckDeadlines();
    MutexLock lock(&mutex_);
    if (stop_) return;
    stopped_.WaitFor(&mutex_, absl::Seconds(1));
  }
}

void Coordinator::CheckAddress() {
  {
    MutexLock lock(&mutex_);
    if (!state_.epoch_on()) return;
  }
  const std::string other = find_other_();
  if (!other.empty()) Supersede(other);
}

void Coordinator::CheckAddressEachSecond() {
  for (;;) {
    CheckAddress();
    MutexLock lock(&mutex_);
    if (stop_) return;
    stopped_.WaitFor(&mutex_, absl::Seconds(1));
  }
}

// --- Calls that the loop carries out -----------------------------------------

absl::Status Coordinator::Enqueue(std::optional<uint64_t> epoch,
                                  std::function<void()> operation) {
  MutexLock lock(&mutex_);
  const absl::Status status = state_.CheckAcceptingCalls(epoch);
  if (!status.ok()) return status;
  if (operations_.size() >= kMaxQueuedCalls) {
    return absl::UnavailableError(
        absl::StrCat(operations_.size(),
                     " calls wait for the coordinator already; try again"));
  }
  operations_.push_back(std::move(operation));
  changed_.NotifyAll();
  return absl::OkStatus();
}

void Coordinator::Leave(uint64_t epoch, uint64_t session,
                        std::function<void(absl::Status)> done) {
  const absl::Status status = Enqueue(
      epoch, [this, epoch, session, done] { DoLeave(epoch, session, done); });
  if (!status.ok()) done(status);
}

void Coordinator::Evict(int32_t rank, const std::string& reason,
                        std::function<void(absl::StatusOr<Eviction>)> done) {
  absl::Status status = ValidateText("reason", reason);
  if (status.ok()) {
    status = Enqueue(
        {}, [this, rank, reason, done] { DoEvict(rank, reason, done); });
  }
  if (!status.ok()) done(status);
}

// --- Attendance and leases ---------------------------------------------------

absl::StatusOr<uint64_t> Coordinator::Attend(uint64_t epoch, uint64_t session,
                                             EventCallback on_event) {
  MutexLock lock(&mutex_);
  absl::Status status = state_.CheckAcceptingCalls(epoch);
  if (!status.ok()) return status;
  status = state_.job()->Renew(session, clock_->Now());
  if (!status.ok()) return status;
  return state_.attendance()->Open(session, std::move(on_event));
}

absl::StatusOr<uint64_t> Coordinator::Renew(uint64_t epoch, uint64_t session,
                                            absl::string_view transports) {
  MutexLock lock(&mutex_);
  return state_.Renew(epoch, session, transports, peers_.size(), clock_->Now());
}

void Coordinator::Detach(uint64_t stream) {
  MutexLock lock(&mutex_);
  const std::optional<uint64_t> session = state_.attendance()->Close(stream);
  if (!session.has_value()) return;
  // A session that has ended needs no grace.
  state_.job()->BeginGrace(*session, clock_->Now()).IgnoreError();
  changed_.NotifyAll();  // the lease ends earlier than the loop knows
}

// --- Commits and outcomes ----------------------------------------------------

uint64_t Coordinator::Commit(CommitCall call, OutcomeCallback done) {
  // This process knows what has landed on its own shard, and can refuse an
  // incomplete row at once. What other shards lack, they report when the round
  // is closed.
  call.pushed = peers_.peer(0)->CheckPushed(
      {call.epoch, call.session, call.round, call.kind, call.attempt});
  OutcomeAnswer answer;
  {
    MutexLock lock(&mutex_);
    absl::Status status = state_.CheckAcceptingCalls(call.epoch);
    if (status.ok()) status = ValidateRowCrc32c(call.row_crc32c, peers_.size());
    answer = status.ok() ? state_.Commit(call, clock_->Now()) : status;
    if (IsPending(answer)) {
      const absl::StatusOr<uint64_t> number = state_.waiters()->Add(
          OutcomeWaiters::Call::kCommit,
          {call.kind, call.round, call.session, call.attempt}, done);
      WakeLoopIfDue();  // it may be the commit that closes the round
      if (number.ok()) return *number;
      answer = number.status();
    }
  }
  OutcomeWaiters::Reply(done, answer);
  return 0;
}

// --- Operators and questions -------------------------------------------------

// So that nothing is lost by a stop in good order, whichever shards go with it.
void Coordinator::AwaitLastCheckpoint(absl::Time deadline) {
  CheckpointSchedule* const schedule = state_.checkpoints();
  if (!options_.checkpoint.enabled || !state_.epoch_on() ||
      !state_.job()->seeded() || absl::Now() >= deadline) {
    return;
  }
  if (!schedule->Has(state_.job()->id())) schedule->Request(nullptr);
  changed_.NotifyAll();
  while ((schedule->requested() || schedule->busy()) && state_.epoch_on() &&
         absl::Now() < deadline) {
    changed_.WaitFor(&mutex_, deadline - absl::Now());
  }
}

void Coordinator::Drain(absl::Time deadline) {
  DeferredCalls calls;
  {
    MutexLock lock(&mutex_);
    calls = state_.BeginDraining();
    changed_.NotifyAll();
  }
  // At once: a round may take minutes, in which workers could make ready.
  calls.Run();
  calls = DeferredCalls();
  {
    MutexLock lock(&mutex_);
    while (state_.in_round() && absl::Now() < deadline) {
      changed_.WaitFor(&mutex_, deadline - absl::Now());
    }
    AwaitLastCheckpoint(deadline);
    // A round that has just ended has answers; nothing else will have any.
    if (state_.epoch_on()) calls.Add(state_.ReplyToWaiters());
    calls.Add(state_.waiters()->FailAll(state_.CheckAcceptingCalls()));
    // No epoch begins any more in which shards could confirm it.
    if (!state_.epoch_on()) {
      calls.Add(kept_answers_.Refuse(state_.CheckAcceptingCalls()));
    }
  }
  calls.Run();
  // No epoch begins with it any more.
  EndOrder(absl::UnavailableError("draining: the coordinator stops"));
}

}  // namespace agg
