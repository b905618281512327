// The calls that come from any thread: what changes membership is queued for
// the loop, the rest is done here, under the lock. Then the loop, which has the
// tasks do what is due.
#include "server/coordinator/coordinator.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/base/status_macros.h"
#include "server/coordinator/coordinator_state.h"
#include "server/coordinator/job_state.h"

namespace agg {

Coordinator::Coordinator(const CoordinatorOptions& options,
                         std::vector<ShardPeer*> peers, const Clock* clock,
                         ReportCallback on_report, FindOther find_other,
                         const PeerGroup::Order& order)
    : context_(options, peers, clock, std::move(on_report), order),
      shard_events_(std::make_shared<ShardEvents>(
          [this](uint64_t epoch, const absl::Status& reason) {
            context_.LoseEpoch(epoch, reason);
          },
          [this](uint64_t epoch, int ordinal) { NoteDraining(epoch, ordinal); },
          [this](uint64_t epoch, int ordinal,
                 const std::vector<CompleteRow>& rows) {
            NoteComplete(epoch, ordinal, rows);
          },
          [this](uint64_t epoch, int ordinal,
                 std::shared_ptr<const CloseOffer> offer) {
            MutexLock lock(&context_.mutex);
            JobState* const job = context_.state.JobOf(epoch);
            if (job != nullptr) job->NoteOffer(ordinal, std::move(offer));
          })),
      has_address_(find_other != nullptr),
      restores_(&context_),
      recovery_(&context_, &restores_, shard_events_, std::move(find_other)),
      joins_(&context_, peers, order),
      checkpoints_(&context_, peers, order),
      handover_(&context_),
      rounds_(&context_, &restores_) {
  for (int ordinal = 0; ordinal < static_cast<int>(peers.size()); ++ordinal) {
    peers[ordinal]->SetOnDraining(
        [events = shard_events_, ordinal](uint64_t epoch) {
          events->NotifyDraining(epoch, ordinal);
        });
    peers[ordinal]->SetOnComplete(
        [events = shard_events_, ordinal](
            uint64_t epoch, const std::vector<CompleteRow>& rows) {
          events->NotifyComplete(epoch, ordinal, rows);
        });
    peers[ordinal]->SetOnOffer(
        [events = shard_events_, ordinal](
            uint64_t epoch, std::shared_ptr<const CloseOffer> offer) {
          events->NotifyOffer(epoch, ordinal, std::move(offer));
        });
  }
}

Coordinator::~Coordinator() {
  Drain(absl::InfinitePast());
  {
    MutexLock lock(&context_.mutex);
    context_.stop = true;
    context_.changed.NotifyAll();
    stopped_.NotifyAll();
  }
  context_.rule_processes.Stop();
  checkpoints_.Wake();
  joins_.Stop();
  for (std::thread& thread : threads_) thread.join();
  {
    TellingLock lock(&context_.mutex);
    const absl::Status stops = context_.state.CheckAcceptingCalls();
    lock.Tell(context_.state.checkpoints()->Refuse(stops));
    lock.Tell(context_.kept_answers.Refuse(stops));
  }
  restores_.EndOrder(
      absl::UnavailableError("the coordinator is shutting down"));
  // While what it calls back to can still ask this object.
  context_.reporter.Flush();
  shard_events_->Stop();
  // Each queued call is refused now; its caller has to hear of it.
  for (;;) {
    const bool called = context_.RunOperation();
    if (!joins_.ServeNext() && !called) return;
  }
}

void Coordinator::Start() {
  threaded_ = true;
  threads_.emplace_back([this] { joins_.Serve(); });
  threads_.emplace_back([this] { EachSecond([this] { CheckDeadlines(); }); });
  threads_.emplace_back([this] { checkpoints_.Watch(); });
  if (has_address_) {
    threads_.emplace_back([this] { EachSecond([this] { CheckAddress(); }); });
  }
  context_.reporter.Start();
  threads_.emplace_back([this] { Loop(); });
}

// --- Deadlines --------------------------------------------------------------

void Coordinator::EachSecond(const std::function<void()>& look) {
  for (;;) {
    look();
    MutexLock lock(&context_.mutex);
    if (context_.stop) return;
    stopped_.WaitFor(&context_.mutex, absl::Seconds(1));
  }
}

void Coordinator::CheckDeadlines() {
  context_.rule_processes.CheckDeadlines();
  joins_.Expire(context_.clock->Now());
  {
    TellingLock lock(&context_.mutex);
    const absl::Status accepting = context_.state.CheckAcceptingCalls();
    lock.Tell(context_.kept_answers.Expire(
        context_.clock->Now(), accepting.ok()
                                   ? "a shard has not answered"
                                   : std::string(accepting.message())));
  }
  {
    TellingLock lock(&context_.mutex);
    lock.Tell(context_.state.SayWhoReducesNot(context_.clock->Now()));
  }
  restores_.ExpireOrder();
  std::vector<uint64_t> progress;
  for (int i = 0; i < context_.peers.size(); ++i) {
    progress.push_back(context_.peers.peer(i)->Progress());
  }
  for (const LatePhase& late : context_.phase_watch.TakeLate(progress)) {
    const absl::Status reason = absl::UnavailableError(late.text);
    // The epoch's end is logged with the reason. A shard of this process cannot
    // be given up: the loop stays in it until the process ends.
    context_.LoseEpoch(late.epoch, reason);
    context_.peers.peer(late.shard)->GiveUp(late.epoch, reason);
  }
}

// --- Ends of sessions, which the loop carries out ---------------------------

void Coordinator::Leave(uint64_t epoch, uint64_t session,
                        std::function<void(absl::Status)> done) {
  const absl::Status status = context_.Enqueue(
      epoch, [this, epoch, session, done] { DoLeave(epoch, session, done); });
  if (!status.ok()) done(status);
}

void Coordinator::DoLeave(uint64_t epoch, uint64_t session,
                          const std::function<void(absl::Status)>& done) {
  absl::Status status;
  bool waits = false;
  {
    MutexLock lock(&context_.mutex);
    // In a job that is over no round asks any more who is in.
    waits = !context_.state.finished();
    status = context_.state.CheckAcceptingCalls(epoch);
    if (status.ok()) {
      status = context_.state.job()->Leave(session, context_.clock->Now());
    }
    waits = waits && status.ok();
    if (waits) context_.AnswerWhenKept("the session has left", done);
  }
  context_.DeliverEffects();
  if (!waits) done(status);
}

void Coordinator::Evict(int32_t rank, const std::string& reason,
                        std::function<void(absl::StatusOr<Eviction>)> done) {
  absl::Status status = ValidateText("reason", reason);
  if (status.ok()) {
    status = context_.Enqueue(
        {}, [this, rank, reason, done] { DoEvict(rank, reason, done); });
  }
  if (!status.ok()) done(status);
}

void Coordinator::DoEvict(
    int32_t rank, const std::string& reason,
    const std::function<void(absl::StatusOr<Eviction>)>& done) {
  absl::StatusOr<Eviction> eviction = absl::UnknownError("");
  {
    MutexLock lock(&context_.mutex);
    const absl::Status status = context_.state.CheckAcceptingCalls();
    if (status.ok()) {
      eviction = context_.state.job()->Evict(rank, reason);
    } else {
      eviction = status;
    }
    if (eviction.ok()) {
      context_.AnswerWhenKept(absl::StrCat("rank ", rank, " is evicted"),
                              [done, eviction](const absl::Status& kept) {
                                done(kept.ok() ? eviction : kept);
                              });
    }
  }
  if (!eviction.ok()) return done(eviction);
  context_.DeliverEffects();
}

bool Coordinator::ExpireIfDue() {
  {
    MutexLock lock(&context_.mutex);
    // Leases end while draining, too: workers may go as they like.
    if (!context_.state.epoch_on()) return false;
    JobState* const job = context_.state.job();
    const size_t num_members = job->members().size();
    job->ExpireLeases(context_.clock->Now());
    if (job->members().size() == num_members) return false;
  }
  context_.DeliverEffects();
  return true;
}

// --- Attendance and leases --------------------------------------------------

absl::StatusOr<uint64_t> Coordinator::Attend(uint64_t epoch, uint64_t session,
                                             EventCallback on_event) {
  MutexLock lock(&context_.mutex);
  AGG_RETURN_IF_ERROR(context_.state.CheckAcceptingCalls(epoch));
  AGG_RETURN_IF_ERROR(
      context_.state.job()->Renew(session, context_.clock->Now()));
  return context_.state.event_streams()->Open(session, std::move(on_event));
}

absl::StatusOr<uint64_t> Coordinator::Renew(uint64_t epoch, uint64_t session,
                                            absl::string_view transports) {
  MutexLock lock(&context_.mutex);
  return context_.state.Renew(epoch, session, transports, context_.peers.size(),
                              context_.clock->Now());
}

void Coordinator::Detach(uint64_t stream) {
  MutexLock lock(&context_.mutex);
  const std::optional<uint64_t> session =
      context_.state.event_streams()->Close(stream);
  if (!session.has_value()) return;
  // A session that has ended needs no grace.
  context_.state.job()
      ->BeginGrace(*session, context_.clock->Now())
      .IgnoreError();
  context_.changed.NotifyAll();  // the lease ends earlier than the loop knows
}

// --- Commits, outcomes and small reductions ---------------------------------

uint64_t Coordinator::Commit(CommitCall call, OutcomeCallback done) {
  // This process knows what has landed on its own shard, and can refuse an
  // incomplete row at once. What other shards lack, they report when the round
  // is closed.
  call.pushed = context_.peers.peer(0)->CheckPushed(
      {call.epoch, call.session, call.round, call.kind, call.attempt});
  uint64_t number = 0;
  TellingLock lock(&context_.mutex);
  absl::Status status = context_.state.CheckAcceptingCalls(call.epoch);
  if (status.ok()) {
    status = ValidateRowCrc32c(call.row_crc32c, context_.peers.size());
  }
  OutcomeAnswer answer =
      status.ok() ? context_.state.job()->Commit(call, context_.clock->Now())
                  : OutcomeAnswer(status);
  const bool waits = IsPending(answer);
  lock.Tell(context_.state.waiters()->Answer(
      OutcomeWaiters::Call::kCommit,
      {call.kind, call.round, call.session, call.attempt}, std::move(answer),
      std::move(done), &number));
  if (waits) WakeLoopIfDue();  // it may be the commit that closes the round
  return number;
}

uint64_t Coordinator::WaitRound(uint64_t epoch, const OutcomeQuery& query,
                                OutcomeCallback done) {
  uint64_t number = 0;
  TellingLock lock(&context_.mutex);
  const absl::Status status = epoch == 0
                                  ? context_.state.CheckAcceptingCalls()
                                  : context_.state.CheckAcceptingCalls(epoch);
  OutcomeAnswer answer =
      status.ok() ? context_.state.job()->Answer(query) : OutcomeAnswer(status);
  lock.Tell(context_.state.waiters()->Answer(OutcomeWaiters::Call::kWaitRound,
                                             query, std::move(answer),
                                             std::move(done), &number));
  return number;
}

void Coordinator::CancelWait(uint64_t number) {
  MutexLock lock(&context_.mutex);
  context_.state.waiters()->Remove(number);
}

uint64_t Coordinator::Reduce(uint64_t epoch, ReduceCall call,
                             SmallReductions::Done done) {
  uint64_t number = 0;
  TellingLock lock(&context_.mutex);
  lock.Tell(context_.state.Reduce(epoch, std::move(call), context_.clock->Now(),
                                  std::move(done), &number));
  MakeReduction();
  return number;
}

void Coordinator::CancelReduce(uint64_t number) {
  MutexLock lock(&context_.mutex);
  context_.state.reductions()->Remove(number);
}

void Coordinator::MakeReduction() {
  context_.state.MakeReduction();
  uint64_t serial = 0;
  if (!context_.state.reductions()->TakeUnconfirmed(&serial)) return;
  context_.AnswerWhenKept(
      "the reduction is made", [this, serial](const absl::Status& kept) {
        TellingLock lock(&context_.mutex);
        lock.Tell(context_.state.reductions()->Confirm(serial, kept));
        MakeReduction();  // another one may wait
      });
  context_.changed.NotifyAll();
}

// --- Operators and questions ------------------------------------------------

absl::StatusOr<RuleChangeResult> Coordinator::SetRule(
    const RuleChange& change, const CombinationCheck& check) {
  MutexLock lock(&context_.mutex);
  return context_.state.SetRule(change, check);
}

void Coordinator::SetRuleEverywhere(const RuleChange& change,
                                    RuleCallback done) {
  TellingLock lock(&context_.mutex);
  absl::StatusOr<RuleChangeResult> result = absl::UnavailableError(
      absl::StrCat(context_.kept_answers.size(),
                   " changes wait until all shards have them; try again"));
  if (context_.kept_answers.size() < kMaxQueuedCalls) {
    result = context_.state.SetRule(change, nullptr);
  }
  if (!result.ok()) return lock.Tell([done, result] { done(result); });
  context_.AnswerWhenKept("the rule is set",
                          [done, result](const absl::Status& status) {
                            done(status.ok() ? result : status);
                          });
  context_.changed.NotifyAll();
}

void Coordinator::Drain(absl::Time deadline) {
  {
    // Workers hear of it at once: a round may take minutes, in which they could
    // make ready.
    TellingLock lock(&context_.mutex);
    lock.Tell(context_.state.BeginDraining());
    context_.changed.NotifyAll();
  }
  // A round that waits for one has its fallback, so that the deadline is left
  // for its end and for the last checkpoint.
  context_.rule_processes.Stop();
  {
    MutexLock lock(&context_.mutex);
    while (context_.state.in_round() && absl::Now() < deadline) {
      context_.changed.WaitFor(&context_.mutex, deadline - absl::Now());
    }
  }
  checkpoints_.AwaitLast(deadline);
  {
    TellingLock lock(&context_.mutex);
    CoordinatorState& state = context_.state;
    const absl::Status stops = state.CheckAcceptingCalls();
    // A round that has just ended has answers; nothing else will have any.
    if (state.epoch_on()) lock.Tell(state.ReplyToWaiters());
    lock.Tell(state.waiters()->FailAll(stops));
    lock.Tell(state.reductions()->FailAll(stops));
    // No epoch begins any more in which shards could confirm it.
    if (!state.epoch_on()) lock.Tell(context_.kept_answers.Refuse(stops));
  }
  // No epoch begins with it any more.
  restores_.EndOrder(absl::UnavailableError("draining: the coordinator stops"));
}

absl::StatusOr<std::string> Coordinator::OwnerOf(std::optional<uint64_t> epoch,
                                                 uint64_t session) const {
  MutexLock lock(&context_.mutex);
  AGG_RETURN_IF_ERROR(context_.state.CheckAcceptingCalls(epoch));
  return context_.state.job()->sessions().Owner(session);
}

absl::StatusOr<JoinResult> Coordinator::Observe() const {
  MutexLock lock(&context_.mutex);
  return context_.state.Observe();
}

JobStatus Coordinator::Status() const {
  JobStatus status;
  {
    MutexLock lock(&context_.mutex);
    status = context_.state.Status(context_.clock->Now());
  }
  const std::string waiting = context_.phase_watch.WaitingText();
  if (!waiting.empty()) {
    absl::StrAppend(&status.message, status.message.empty() ? "" : "; ",
                    waiting);
  }
  status.phase_timeouts = context_.phase_watch.num_late();
  status.rule_processes = context_.rule_processes.Status();
  return status;
}

std::optional<RoundResult> Coordinator::LastOutcome() const {
  MutexLock lock(&context_.mutex);
  return context_.state.recent_rounds().last_outcome();
}

std::vector<RoundResult> Coordinator::Rounds() const {
  MutexLock lock(&context_.mutex);
  return context_.state.recent_rounds().outcomes();
}

std::vector<double> Coordinator::TensorOrthogonality() const {
  MutexLock lock(&context_.mutex);
  return context_.state.recent_rounds().tensor_orthogonality();
}

bool Coordinator::finished() const {
  MutexLock lock(&context_.mutex);
  return context_.state.finished();
}

// --- The loop ---------------------------------------------------------------

bool Coordinator::RunOnce() {
  // The shards hear of a lost epoch before anything else is asked of them.
  context_.PropagateLoss();
  {
    TellingLock lock(&context_.mutex);
    lock.Tell(context_.state.SayWhoIsWaitedFor(context_.clock->Now()));
  }
  const bool joined = !threaded_ && joins_.ServeNext();
  if (!threaded_) checkpoints_.Look();
  {
    MutexLock lock(&context_.mutex);
    MakeReduction();
  }
  context_.SendFacts();
  if (context_.RunOperation() || joined || rounds_.WaveIfDue()) return true;
  if (rounds_.waving()) return ExpireIfDue();  // it comes first
  return recovery_.RunIfDue() || handover_.RunIfDue() || ExpireIfDue() ||
         joins_.RunIfDue() || rounds_.SeedIfDue() || rounds_.FailIfDue() ||
         checkpoints_.RunIfDue() || rounds_.RunIfDue();
}

void Coordinator::Loop() {
  for (;;) {
    while (RunOnce()) {
      MutexLock lock(&context_.mutex);
      if (context_.stop) return;
    }
    MutexLock lock(&context_.mutex);
    if (context_.stop) return;
    if (!context_.operations.empty() || context_.state.has_loss()) continue;
    // A commit may have come between RunOnce and here. Nobody notifies for it
    // again, so NextWake looks at the state itself.
    const absl::Time now = context_.clock->Now();
    const absl::Time wake = context_.state.NextWake(now);
    // At most a second, since the wait is measured by another clock.
    if (wake > now) {
      asleep_until_ = wake;
      context_.changed.WaitFor(&context_.mutex,
                               std::min(wake - now, absl::Seconds(1)));
      asleep_until_ = absl::InfinitePast();
    }
  }
}

void Coordinator::WakeLoopIfDue() {
  if (context_.state.NextWake(context_.clock->Now()) < asleep_until_)
    context_.changed.NotifyAll();
}

void Coordinator::NoteComplete(uint64_t epoch, int ordinal,
                               const std::vector<CompleteRow>& rows) {
  MutexLock lock(&context_.mutex);
  JobState* const job = context_.state.JobOf(epoch);
  if (job == nullptr) return;
  // Rows of a round in execution are of interest while this process drains.
  job->NoteComplete(ordinal, rows, !context_.state.draining(),
                    context_.clock->Now());
  WakeLoopIfDue();  // it may be what closes the round
}

void Coordinator::NoteDraining(uint64_t epoch, int ordinal) {
  MutexLock lock(&context_.mutex);
  context_.state.NoteDraining(epoch, ordinal);
  context_.changed.NotifyAll();
}

}  // namespace agg
