// Construction, and the calls that come from any thread. What changes
// membership is queued for the loop; the rest is done here, under the lock.
#include "server/coordinator/coordinator.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "kernels/optimizer_table.h"
#include "server/base/dcheck.h"
#include "server/base/field_error.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"
#include "server/base/utf8.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/checkpoint/checkpoint_state.h"
#include "server/coordinator/checkpoint_task.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/job_record.h"
#include "server/coordinator/job_state.h"
#include "server/coordinator/recovery_plan.h"
#include "server/coordinator/round_reporter.h"
#include "server/round/orderly_stop.h"

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
      shard_events_(std::make_shared<ShardEvents>(
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
        [events = shard_events_, ordinal](uint64_t epoch) {
          events->NotifyDraining(epoch, ordinal);
        });
    peers_.peer(ordinal)->SetOnComplete(
        [events = shard_events_, ordinal](
            uint64_t epoch, const std::vector<CompleteRow>& rows) {
          events->NotifyComplete(epoch, ordinal, rows);
        });
    peers_.peer(ordinal)->SetOnOffer(
        [events = shard_events_, ordinal](
            uint64_t epoch, std::shared_ptr<const CloseOffer> offer) {
          events->NotifyOffer(epoch, ordinal, std::move(offer));
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
  shard_events_->Stop();
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
  SayWhoReducesNot();
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
  AGG_RETURN_IF_ERROR(state_.CheckAcceptingCalls(epoch));
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
  AGG_RETURN_IF_ERROR(state_.CheckAcceptingCalls(epoch));
  AGG_RETURN_IF_ERROR(state_.job()->Renew(session, clock_->Now()));
  return state_.event_streams()->Open(session, std::move(on_event));
}

absl::StatusOr<uint64_t> Coordinator::Renew(uint64_t epoch, uint64_t session,
                                            absl::string_view transports) {
  MutexLock lock(&mutex_);
  return state_.Renew(epoch, session, transports, peers_.size(), clock_->Now());
}

void Coordinator::Detach(uint64_t stream) {
  MutexLock lock(&mutex_);
  const std::optional<uint64_t> session = state_.event_streams()->Close(stream);
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
    calls.Add(state_.reductions()->FailAll(state_.CheckAcceptingCalls()));
    // No epoch begins any more in which shards could confirm it.
    if (!state_.epoch_on()) {
      calls.Add(kept_answers_.Refuse(state_.CheckAcceptingCalls()));
    }
  }
  calls.Run();
  // No epoch begins with it any more.
  EndOrder(absl::UnavailableError("draining: the coordinator stops"));
}

// --- The loop ----------------------------------------------------------------

// What the coordinator's own thread does, one thing after another.
//
// Each step has the same shape: look at the state under the lock, call the
// shards without it, and take the lock again to write down what came of it.
// Meanwhile a shard may be lost, so that the second look starts from nothing.

bool Coordinator::RunOnce() {
  // The shards hear of a lost epoch before anything else is asked of them.
  PropagateLoss();
  SayWhoIsWaitedFor();
  std::shared_ptr<PendingJoin> join;
  if (!threaded_) join = joins_.TryNext();
  if (join != nullptr) ServeJoin(join);
  if (!threaded_) LookAtCheckpoint();
  {
    MutexLock lock(&mutex_);
    MakeReduction();
  }
  FactsIfDue();
  if (RunOperation() || join != nullptr || WaveIfDue()) return true;
  if (waved_round_.has_value()) return ExpireIfDue();  // it comes first
  return AttachIfDue() || HandOverIfDue() || ExpireIfDue() ||
         ForgetManifestIfDue() || SeedIfDue() || FailIfDue() ||
         CheckpointIfDue() || RoundIfDue();
}

void Coordinator::Loop() {
  for (;;) {
    while (RunOnce()) {
      MutexLock lock(&mutex_);
      if (stop_) return;
    }
    MutexLock lock(&mutex_);
    if (stop_) return;
    if (!operations_.empty() || state_.has_loss()) continue;
    // A commit may have come between RunOnce and here. Nobody notifies for it
    // again, so NextWake looks at the state itself.
    const absl::Time now = clock_->Now();
    const absl::Time wake = state_.NextWake(now);
    // At most a second, since the wait is measured by another clock.
    if (wake > now) {
      asleep_until_ = wake;
      changed_.WaitFor(&mutex_, std::min(wake - now, absl::Seconds(1)));
      asleep_until_ = absl::InfinitePast();
    }
  }
}

void Coordinator::WakeLoopIfDue() {
  if (state_.NextWake(clock_->Now()) < asleep_until_) changed_.NotifyAll();
}

bool Coordinator::RunOperation() {
  std::function<void()> operation;
  {
    MutexLock lock(&mutex_);
    if (operations_.empty()) return false;
    operation = std::move(operations_.front());
    operations_.pop_front();
  }
  operation();
  return true;
}

// --- Epochs ------------------------------------------------------------------

void Coordinator::LoseEpoch(uint64_t epoch, const absl::Status& reason) {
  DeferredCalls calls;
  {
    MutexLock lock(&mutex_);
    calls = state_.LoseEpoch(epoch, reason, clock_->Now());
    changed_.NotifyAll();
  }
  calls.Run();
}

void Coordinator::NoteComplete(uint64_t epoch, int ordinal,
                               const std::vector<CompleteRow>& rows) {
  MutexLock lock(&mutex_);
  state_.NoteComplete(epoch, ordinal, rows, clock_->Now());
  WakeLoopIfDue();  // it may be what closes the round
}

void Coordinator::SayWhoIsWaitedFor() {
  DeferredCalls calls;
  {
    MutexLock lock(&mutex_);
    calls = state_.SayWhoIsWaitedFor(clock_->Now());
  }
  calls.Run();
}

void Coordinator::PropagateLoss() {
  std::optional<EpochLoss> loss;
  {
    MutexLock lock(&mutex_);
    loss = state_.TakeLoss();
  }
  if (!loss.has_value()) return;
  peers_
      .ForEach([&](int, ShardPeer* peer) {
        peer->Lose(loss->epoch, loss->reason);
        return absl::OkStatus();
      })
      .IgnoreError();
}

// --- The seed and the rounds -------------------------------------------------

bool Coordinator::SeedIfDue() {
  uint64_t epoch;
  uint64_t session;
  uint32_t attempt;
  {
    MutexLock lock(&mutex_);
    if (!state_.CheckAcceptingCalls().ok() ||
        !state_.job()->seed_committed().has_value()) {
      return false;
    }
    epoch = state_.job()->epoch();
    session = *state_.job()->seed_committed();
    attempt = state_.job()->seed_attempt();
  }
  const absl::Status status = engine_.PublishSeed(session, attempt);
  if (!status.ok()) {
    LoseEpoch(epoch, status);
    return true;
  }
  {
    MutexLock lock(&mutex_);
    if (!state_.CheckAcceptingCalls(epoch).ok()) return true;
    state_.job()->FinishSeed(attempt, clock_->Now());
    state_.checkpoints()->Begin(state_.job()->id(), /*restored=*/std::nullopt,
                                clock_->Now());
    LogInfo("seeded: version 0 is published, epoch ", epoch);
    // Checkpoints of what was there before are newer than nothing: one of this
    // job's own, so that the next start finds it.
    if (!SealedCheckpoints(seen_).empty()) {
      state_.checkpoints()->Request(nullptr);
    }
  }
  DeliverEffects();
  return true;
}

bool Coordinator::FailIfDue() {
  {
    MutexLock lock(&mutex_);
    if (!state_.FailJobIfDue(clock_->Now())) return false;
  }
  DeliverEffects();
  return true;
}

bool Coordinator::RoundIfDue() {
  std::optional<ClosingRound> round;
  {
    MutexLock lock(&mutex_);
    round = state_.CloseRoundIfDue(clock_->Now());
    if (!round.has_value()) return false;
  }
  engine_.SetCombination(round->combine);
  if (options_.pipelined) {
    BeginWaves(*std::move(round));
  } else {
    EndRound(*round,
             engine_.Run(round->round, round->contributions, round->offers));
  }
  return true;
}

void Coordinator::EndRound(const ClosingRound& round,
                           absl::StatusOr<RoundReport> report) {
  if (!report.ok()) LoseEpoch(round.epoch, report.status());
  {
    MutexLock lock(&mutex_);
    changed_.NotifyAll();  // Drain may wait for the round's end
    if (!report.ok()) return state_.GiveUpRound();
    if (!state_.FinishRound(round, clock_->Now(), &*report)) return;
  }
  DeliverEffects();
  // Workers have their answers now; statistics and metrics may take their time,
  // while the next round goes on.
  reported_ = {report->epoch, report->version};
  reporter_.Add(engine_.TakeFacts(), *std::move(report));
}

// The loop's part of a round that is published wave by wave (P43). Between two
// waves it goes on: members come and go.

void Coordinator::BeginWaves(ClosingRound round) {
  engine_.BeginWaves(round.round, round.contributions);
  waved_round_.emplace(std::move(round));
  MutexLock lock(&mutex_);
  state_.BeginWaves(engine_.num_waves());
}

bool Coordinator::WaveIfDue() {
  if (!waved_round_.has_value()) return false;
  WaveStep step;
  {
    MutexLock lock(&mutex_);
    step = state_.NextWave();
    // Its epoch is over: the copies are between two versions (P18).
    if (step.kind == WaveStep::Kind::kGiveUp) {
      state_.GiveUpRound();
      changed_.NotifyAll();  // Drain may wait for the round's end
    }
  }
  switch (step.kind) {
    case WaveStep::Kind::kWait:
      return false;
    case WaveStep::Kind::kGiveUp:
      waved_round_.reset();
      return true;
    case WaveStep::Kind::kRun:
      break;
    case WaveStep::Kind::kFinish:
      EndRound(*std::exchange(waved_round_, std::nullopt),
               engine_.FinishWaves());
      return true;
  }
  const absl::Status status = engine_.RunWave(step.wave, step.ranks);
  if (!status.ok()) {
    EndRound(*std::exchange(waved_round_, std::nullopt), status);
    return true;
  }
  MutexLock lock(&mutex_);
  state_.AdvanceWave(engine_.dropped());
  return true;
}

// Ends of sessions, which the loop carries out one after another, and what
// shards, workers and waiters hear of who is in.

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

uint64_t Coordinator::Reduce(uint64_t epoch, ReduceCall call,
                             SmallReductions::Done done) {
  uint64_t number = 0;
  DeferredCalls calls;
  {
    MutexLock lock(&mutex_);
    calls = state_.Reduce(epoch, std::move(call), clock_->Now(),
                          std::move(done), &number);
    MakeReduction();
  }
  calls.Run();
  return number;
}

void Coordinator::CancelReduce(uint64_t number) {
  MutexLock lock(&mutex_);
  state_.reductions()->Remove(number);
}

void Coordinator::MakeReduction() {
  state_.MakeReduction();
  uint64_t serial = 0;
  if (!state_.reductions()->TakeUnconfirmed(&serial)) return;
  AnswerWhenKept("the reduction is made",
                 [this, serial](const absl::Status& kept) {
                   DeferredCalls calls;
                   {
                     MutexLock lock(&mutex_);
                     calls = state_.reductions()->Confirm(serial, kept);
                     MakeReduction();  // another one may wait
                   }
                   calls.Run();
                 });
  changed_.NotifyAll();
}

void Coordinator::SayWhoReducesNot() {
  DeferredCalls calls;
  {
    MutexLock lock(&mutex_);
    calls = state_.SayWhoReducesNot(clock_->Now());
  }
  calls.Run();
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

// What operators set, and what anybody may ask, from any thread.

absl::StatusOr<RuleChangeResult> Coordinator::SetRule(
    const RuleChange& change, const CombinationCheck& check) {
  MutexLock lock(&mutex_);
  return state_.SetRule(change, check);
}

void Coordinator::SetRuleEverywhere(const RuleChange& change,
                                    RuleCallback done) {
  absl::StatusOr<RuleChangeResult> result = absl::UnknownError("");
  {
    MutexLock lock(&mutex_);
    if (kept_answers_.size() < kMaxQueuedCalls) {
      result = state_.SetRule(change, nullptr);
    } else {
      result = absl::UnavailableError(
          absl::StrCat(kept_answers_.size(),
                       " changes wait until all shards have them; try again"));
    }
    if (result.ok()) {
      AnswerWhenKept("the rule is set",
                     [done, result](const absl::Status& status) {
                       done(status.ok() ? result : status);
                     });
      changed_.NotifyAll();
      return;
    }
  }
  done(result);
}

absl::StatusOr<std::string> Coordinator::OwnerOf(std::optional<uint64_t> epoch,
                                                 uint64_t session) const {
  MutexLock lock(&mutex_);
  AGG_RETURN_IF_ERROR(state_.CheckAcceptingCalls(epoch));
  return state_.job()->sessions().Owner(session);
}

absl::StatusOr<JoinResult> Coordinator::Observe() const {
  MutexLock lock(&mutex_);
  return state_.Observe();
}

JobStatus Coordinator::Status() const {
  JobStatus status;
  {
    MutexLock lock(&mutex_);
    status = state_.Status(clock_->Now());
  }
  const std::string waiting = phase_watch_.WaitingText();
  if (!waiting.empty()) {
    absl::StrAppend(&status.message, status.message.empty() ? "" : "; ",
                    waiting);
  }
  status.phase_timeouts = phase_watch_.num_late();
  return status;
}

std::optional<RoundResult> Coordinator::LastOutcome() const {
  MutexLock lock(&mutex_);
  return state_.recent_rounds().last_outcome();
}

std::vector<RoundRecord> Coordinator::Rounds() const {
  MutexLock lock(&mutex_);
  return state_.recent_rounds().records();
}

std::vector<double> Coordinator::TensorOrthogonality() const {
  MutexLock lock(&mutex_);
  return state_.recent_rounds().tensor_orthogonality();
}

bool Coordinator::finished() const {
  MutexLock lock(&mutex_);
  return state_.finished();
}

uint64_t Coordinator::WaitRound(uint64_t epoch, const OutcomeQuery& query,
                                OutcomeCallback done) {
  OutcomeAnswer answer;
  {
    MutexLock lock(&mutex_);
    const absl::Status status = epoch == 0 ? state_.CheckAcceptingCalls()
                                           : state_.CheckAcceptingCalls(epoch);
    answer = status.ok() ? state_.job()->Answer(query) : status;
    if (IsPending(answer)) {
      const absl::StatusOr<uint64_t> number =
          state_.waiters()->Add(OutcomeWaiters::Call::kWaitRound, query, done);
      if (number.ok()) return *number;
      answer = number.status();
    }
  }
  OutcomeWaiters::Reply(done, answer);
  return 0;
}

void Coordinator::CancelWait(uint64_t number) {
  MutexLock lock(&mutex_);
  state_.waiters()->Remove(number);
}

// Shards that are stopped in good order (P35). The loop sees them between two
// rounds, so that a round in execution is finished first; then rounds stand
// still until a checkpoint has exactly this version, and the epoch ends.

void Coordinator::NoteDraining(uint64_t epoch, int ordinal) {
  MutexLock lock(&mutex_);
  state_.NoteDraining(epoch, ordinal);
  changed_.NotifyAll();
}

bool Coordinator::HandOverIfDue() {
  uint64_t epoch = 0;
  std::set<int> shards;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = clock_->Now();
    const Handover::Step step = state_.NextHandover(now);
    if (step == Handover::Step::kNone) return false;
    state_.handover()->StandStill(now);
    if (step == Handover::Step::kTakeCheckpoint) {
      state_.handover()->NoteRequest();
      state_.checkpoints()->Request(nullptr);
      return true;
    }
    if (step != Handover::Step::kLetGo) return false;
    const JobState& job = *state_.job();
    epoch = job.epoch();
    shards = state_.handover()->Take();
    if (options_.checkpoint.enabled && job.seeded() &&
        !state_.checkpoints()->Has(job.id())) {
      LogWarning("version ", job.version(), " has no checkpoint, yet ",
                 "shards that are being stopped are let go");
    }
  }
  std::vector<std::string> names;
  for (const int shard : shards) names.push_back(peers_.peer(shard)->name());
  const absl::Status reason = OrderlyStop(
      absl::StrCat(absl::StrJoin(names, ", "),
                   names.size() == 1 ? " is" : " are", " shutting down"));
  LoseEpoch(epoch, reason);
  PropagateLoss();
  // A finished job may keep its epoch: those who wait are let go alone.
  for (const int shard : shards) peers_.peer(shard)->Lose(epoch, reason);
  return true;
}

// The beginning of an epoch: one coordinator alone, all shards promise the
// epoch and say what they hold (P20, P21). What comes of that, Recover
// decides and does.

bool Coordinator::AttachIfDue() {
  std::optional<uint64_t> due;
  {
    MutexLock lock(&mutex_);
    due = state_.NextEpochIfDue(clock_->Now());
    if (!due.has_value()) return false;
  }
  if (StandsBy()) return true;
  // A report may ask for the job's manifest, which is another one then.
  reporter_.Flush();
  const uint64_t epoch = AbovePromises(*due);
  std::vector<ShardInventory> inventories(peers_.size());
  absl::Status status = AttachAll(epoch, &inventories);
  // Once more, after the last promise: with two shards a coordinator that was
  // replaced could have got all promises after one of them was forgotten (P21).
  if (status.ok() && StandsBy()) {
    status = absl::UnavailableError("another coordinator has the job");
  }
  std::optional<JobStart> start;
  awaits_person_ = false;
  if (status.ok()) status = Recover(epoch, inventories, &start);
  if (!status.ok()) {
    // Who does not get all shards lets go of all: two coordinators that each
    // hold some would wait for each other (P21).
    peers_
        .ForEach([](int, ShardPeer* peer) {
          peer->LetGo();
          return absl::OkStatus();
        })
        .IgnoreError();
    MutexLock lock(&mutex_);
    if (awaits_person_) {
      state_.AwaitPerson(std::string(status.message()), clock_->Now());
    } else {
      state_.AttachFailed(status);
    }
    return true;
  }
  BeginEpoch(epoch, inventories, std::move(start));
  return true;
}

bool Coordinator::StandsBy() {
  const std::string other = find_other_ == nullptr ? "" : find_other_();
  bool superseded = false;
  {
    MutexLock lock(&mutex_);
    if (!state_.StandBy(other, clock_->Now())) return false;
    superseded = state_.job() != nullptr;
  }
  if (superseded) Supersede(other);
  return true;
}

void Coordinator::Supersede(const std::string& other) {
  {
    MutexLock lock(&mutex_);
    if (std::exchange(superseded_, true)) return;
  }
  LogError("superseded: ", other, "; this coordinator ends");
  if (on_superseded_ != nullptr) {
    on_superseded_(absl::AbortedError(absl::StrCat("superseded: ", other)));
  }
}

uint64_t Coordinator::AbovePromises(uint64_t epoch) {
  std::vector<uint64_t> promises(peers_.size(), 0);
  peers_
      .ForEach([&](int ordinal, ShardPeer* peer) {
        const absl::StatusOr<uint64_t> promise = peer->Promise();
        if (promise.ok()) promises[ordinal] = *promise;
        return promise.status();
      })
      .IgnoreError();
  const uint64_t highest = *std::max_element(promises.begin(), promises.end());
  MutexLock lock(&mutex_);
  return state_.RaiseEpoch(epoch, highest);
}

absl::Status Coordinator::AttachAll(uint64_t epoch,
                                    std::vector<ShardInventory>* inventories) {
  return peers_.ForEach([&](int ordinal, ShardPeer* peer) {
    absl::StatusOr<ShardInventory> inventory = peer->Attach(
        epoch, [events = shard_events_, epoch](const absl::Status& reason) {
          events->Notify(epoch, reason);
        });
    if (inventory.ok()) (*inventories)[ordinal] = *std::move(inventory);
    MutexLock lock(&mutex_);
    state_.NoteAttach(ordinal, inventory.status());
    return inventory.status();
  });
}

void Coordinator::BeginEpoch(uint64_t epoch,
                             const std::vector<ShardInventory>& inventories,
                             std::optional<JobStart> start) {
  std::vector<uint64_t> lives;
  std::vector<std::string> sockets;
  std::vector<std::string> region_sockets;
  for (const ShardInventory& inventory : inventories) {
    lives.push_back(inventory.life);
    sockets.push_back(inventory.local_socket);
    region_sockets.push_back(inventory.region_socket);
  }
  const bool fresh = !start.has_value();
  std::vector<RoundReport> restored;
  std::optional<VersionId> checkpoint;
  const std::string restore = fresh ? std::string() : start->restore;
  if (!fresh) {
    restored = RestoredReports(start->record, reported_);
    checkpoint = start->restored;
  }
  bool finished = false;
  {
    MutexLock lock(&mutex_);
    state_.SetShardProcesses(std::move(lives), std::move(sockets),
                             std::move(region_sockets));
    if (!state_.BeginEpoch(epoch, std::move(start), clock_->Now())) return;
    finished = state_.finished();
    // The first one of its own, lest the next start begins with the other job's
    // again.
    if (checkpoint.has_value() && borrows_) {
      state_.checkpoints()->Request(nullptr);
    }
  }
  if (checkpoint.has_value() && on_restored_ != nullptr) {
    on_restored_(*checkpoint);
  }
  if (fresh) reporter_.SetShadowRules({});
  for (RoundReport& report : restored) {
    reported_ = {report.epoch, report.version};
    reporter_.Add(RoundFacts(), std::move(report));
  }
  CompleteOrder(fresh ? "the job begins anew, by a Seed" : restore);
  if (!finished) return;
  // Shards that are new do not know it.
  SessionChange end;
  end.finished = true;
  end.remove = true;
  const absl::Status told = PropagateSession(epoch, end);
  if (!told.ok()) LoseEpoch(epoch, told);
}

// What a job goes on from after a recovery: who is in, what changed between
// rounds, and what the next rounds need to know of the last ones.

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
  AGG_DCHECK(!decision->plans.empty());
  JobFacts facts = decision->plans.front().facts;
  AGG_ASSIGN_OR_RETURN(const JobFacts sealed, ParseFacts(checkpoint.facts));
  if (borrows_) {
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
  AGG_RETURN_IF_ERROR(FillRecord(epoch, decision, checkpoint, start));
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
  AGG_RETURN_IF_ERROR(engine_.Reset(epoch, start->manifest));
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

// Checkpoints (P30): the arrays are copied between two rounds, by the loop; the
// rest is done beside the rounds, by a thread of its own. What goes wrong fails
// the checkpoint and nothing else.

void Coordinator::TakeCheckpoint(
    std::function<void(absl::StatusOr<TakenCheckpoint>)> done) {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    status = state_.CheckAcceptingCalls();
    if (!options_.checkpoint.enabled) {
      status = absl::FailedPreconditionError(
          "checkpoint.path is not configured: no checkpoints are taken");
    } else if (status.ok() && !state_.job()->seeded()) {
      status = absl::FailedPreconditionError(
          "no version is published yet, so there is nothing to keep");
    } else if (status.ok() && !state_.checkpoints()->has_room()) {
      status = absl::ResourceExhaustedError(
          absl::StrCat(CheckpointSchedule::kMaxWaiting,
                       " calls wait for a checkpoint already"));
    }
    if (status.ok()) {
      state_.checkpoints()->Request(std::move(done));
      changed_.NotifyAll();
      return;
    }
  }
  done(status);
}

// --- The loop's half ---------------------------------------------------------

bool Coordinator::BeginCheckpoint(uint64_t* epoch, JobRecord* record,
                                  CheckpointManifest* manifest) {
  MutexLock lock(&mutex_);
  if (!state_.epoch_on() || !state_.job()->seeded()) return false;
  const JobState& job = *state_.job();
  const absl::Time now = clock_->Now();
  CheckpointSchedule* const schedule = state_.checkpoints();
  if (!schedule->Due(job.id(), job.finished(), now)) return false;
  if (schedule->busy()) {
    schedule->Skip(job.id(), now);
    return false;
  }
  schedule->Start(job.id(), now);
  *epoch = job.epoch();
  manifest->id = job.id();
  manifest->history = job.history();
  manifest->tensors = **job.manifest();
  for (const auto& [rank, member] : job.members()) {
    manifest->members.push_back({rank, member.session, member.first_round,
                                 member.client, member.identity});
  }
  manifest->facts = FactsText(state_.facts());
  job.FillRecord(record);
  return true;
}

// Such a version is worth nothing, and would push out one that is. The shards
// look at what they write, too, since an epoch may begin with one.
absl::Status Coordinator::CheckFinite() const {
  MutexLock lock(&mutex_);
  const std::string found = state_.NotFiniteText();
  if (found.empty()) return absl::OkStatus();
  const std::optional<VersionId> newest = state_.checkpoints().newest();
  return absl::FailedPreconditionError(absl::StrCat(
      found, ", so that none is taken of them",
      newest.has_value()
          ? absl::StrCat("; `aggctl restore ", CheckpointFolderName(*newest),
                         "` goes back to version ", newest->version)
          : ""));
}

bool Coordinator::CheckpointIfDue() {
  CheckpointManifest manifest;
  JobRecord record;
  uint64_t epoch = 0;
  if (!BeginCheckpoint(&epoch, &record, &manifest)) return false;
  absl::Status status = CheckFinite();
  if (!status.ok()) {
    EndCheckpoint(status);
    return true;
  }
  status = RunPhases([&](int) {
    Phase phase;
    phase.kind = PhaseKind::kCapture;
    phase.epoch = epoch;
    phase.id = manifest.id;
    return phase;
  });
  if (status.ok()) {
    engine_.FillRecord(&record);
    record.state.shadow_rules = reporter_.ShadowRules();
    manifest.record = TextOf(std::move(record));
  }
  manifest.job = options_.job;
  manifest.num_shards = peers_.size();
  manifest.optimizer = LineOf(options_.optimizer.kind).name;
  manifest.num_state_arrays = OptimizerStateArrays(options_.optimizer);
  manifest.config = options_.checkpoint.config_text;
  MutexLock lock(&mutex_);
  // Also where it has failed: the parts that some shards have are removed
  // beside the rounds, since their disks may hang.
  checkpoint_ = std::make_unique<CheckpointTask>(
      &checkpoint_peers_, epoch, std::move(manifest), options_.checkpoint.keep,
      state_.job()->line(), std::move(status));
  checkpoint_begun_.NotifyAll();
  return true;
}

// --- The half beside the rounds ----------------------------------------------

bool Coordinator::LookAtCheckpoint() {
  CheckpointTask* task = nullptr;
  {
    MutexLock lock(&mutex_);
    task = checkpoint_.get();
  }
  if (task == nullptr) return false;
  // Nobody else ends it, so that it lives as long as this call.
  const auto result = task->Look();
  if (!result.has_value()) return false;
  {
    MutexLock lock(&mutex_);
    checkpoint_ = nullptr;
  }
  EndCheckpoint(*result);
  return true;
}

void Coordinator::EndCheckpoint(const absl::StatusOr<TakenCheckpoint>& result) {
  DeferredCalls calls;
  {
    MutexLock lock(&mutex_);
    calls = state_.checkpoints()->End(result, clock_->Now());
    changed_.NotifyAll();
  }
  calls.Run();
}

void Coordinator::WatchCheckpoints() {
  constexpr absl::Duration kInterval = absl::Milliseconds(50);
  for (;;) {
    {
      MutexLock lock(&mutex_);
      while (!stop_ && checkpoint_ == nullptr) {
        checkpoint_begun_.Wait(&mutex_);
      }
      if (stop_) return;
    }
    if (LookAtCheckpoint()) continue;
    MutexLock lock(&mutex_);
    if (!stop_) checkpoint_begun_.WaitFor(&mutex_, kInterval);
  }
}

// --- The record of each round ------------------------------------------------

std::string Coordinator::MakeRecord(const RoundReport& report,
                                    JobRecord record) {
  std::vector<RecordedOutcome> outcomes;
  MutexLock lock(&mutex_);
  const JobState& job = *state_.job();
  job.FillRecord(&record);
  if (report.version == 0) {  // the seed
    record.history = job.epoch();
    record.line = job.epoch();
    return TextOf(std::move(record));
  }
  RecordedOutcome next;
  next.outcome = OutcomeOf(report);
  for (const int32_t rank : next.outcome.ranks) {
    const auto found = job.contributions().find(rank);
    if (found == job.contributions().end()) continue;
    const Contribution& row = found->second;
    next.included[row.session] = row.attempt;
    record.used_rows[rank] = {row.session, report.round, row.attempt};
  }
  record.outcomes.push_back(std::move(next));
  return TextOf(std::move(record));
}

std::string Coordinator::TextOf(JobRecord record) {
  bool cut = false;
  std::string text = JobRecordText(std::move(record), kMaxJobRecordBytes, &cut);
  if (cut && !std::exchange(record_was_cut_, true)) {
    LogError("the job's record is longer than ", kMaxJobRecordBytes,
             " bytes: it has not what shadow rules remember, so that they "
             "start anew after a recovery; use fewer of them");
  }
  return text;
}

// --- Facts -------------------------------------------------------------------

void Coordinator::FactsIfDue() {
  std::optional<JobFacts> facts;
  uint64_t epoch = 0;
  {
    MutexLock lock(&mutex_);
    facts = state_.TakeNewFacts();
    if (!facts.has_value()) return;
    epoch = state_.job()->epoch();
    // With the facts, since who comes later waits for later ones.
    kept_answers_.Send();
  }
  const absl::Status status = peers_.ForEach(
      [&](int, ShardPeer* peer) { return peer->SetFacts(epoch, *facts); });
  if (!status.ok()) LoseEpoch(epoch, status);
  DeferredCalls calls;
  {
    MutexLock lock(&mutex_);
    if (status.ok()) {
      calls = kept_answers_.Kept();
    } else if (state_.lost_after_end()) {
      calls = kept_answers_.Refuse(status);
    } else {
      // The next epoch gets them again, and then all have their answers.
      state_.RepeatFacts();
      kept_answers_.NotKept();
    }
  }
  calls.Run();
}

// Joins, in two halves (P32). Memory is reserved on all shards by the joins
// thread, which may take long and harms nobody; then the loop takes the worker
// in, which allocates nothing.

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

// --- The loop's half of a join -----------------------------------------------

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
    AGG_ASSIGN_OR_RETURN(const uint64_t session,
                         state_.job()->SessionFor(call));
    if (state_.job()->Resumes(session)) return Resume(call);
    change = state_.job()->BeginJoin(call, session);
  }
  absl::Status propagated = PropagateSession(epoch, change);
  propagated.Update(join.CheckCaller());
  MutexLock lock(&mutex_);
  AGG_RETURN_IF_ERROR(state_.CheckAcceptingCalls(epoch));
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

// What is left of the job when an epoch begins, and how it goes on (P18, P19,
// P29). A failure anywhere leads to a newer epoch, and through the same steps.

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
    AGG_RETURN_IF_ERROR(KeepBeginning(epoch));
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
    AGG_ASSIGN_OR_RETURN(CheckpointManifest parsed,
                         ParseCheckpointManifest(result->manifest));
    RestoringJob job;
    job.job = borrows_ ? options_.checkpoint.restore_job : options_.job;
    job.optimizer = LineOf(options_.optimizer.kind).name;
    job.num_state_arrays = OptimizerStateArrays(options_.optimizer);
    AGG_RETURN_IF_ERROR(CheckRestorable(parsed, job));
    *manifest = std::move(parsed);
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
    AGG_ASSIGN_OR_RETURN(start->manifest,
                         peers_.peer(source)->GetManifest(epoch));
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

// Which checkpoint a job goes on from, and an operator's word on it (P29).
// Nothing is passed over in silence: what cannot be loaded is named, and waited
// for until it is there again or somebody says otherwise.

namespace {

// A disk that is back is found, and a large one is not read all the time.
constexpr absl::Duration kAskAgain = absl::Seconds(15);
// It goes to workers, and gRPC carries at most some 8 KiB of it.
constexpr size_t kMaxRefusalBytes = 3000;

// Folders that differ, once each.
std::string FoldersText(const std::vector<CheckpointListing>& listings) {
  std::vector<std::string> folders;
  for (const CheckpointListing& listing : listings) {
    if (listing.folder.empty()) continue;
    if (std::count(folders.begin(), folders.end(), listing.folder) == 0) {
      folders.push_back(listing.folder);
    }
  }
  return absl::StrJoin(folders, ", ");
}

// A shard was lost, or another epoch has begun.
bool SaysNothingOfFiles(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) ||
         absl::IsCancelled(status);
}

bool HasUnsealed(const std::vector<CheckpointListing>& listings) {
  return std::any_of(
      listings.begin(), listings.end(),
      [](const CheckpointListing& listing) { return !listing.states.empty(); });
}

}  // namespace

// --- What there is -----------------------------------------------------------

void Coordinator::See(const std::vector<ShardInventory>& inventories) {
  MutexLock lock(&mutex_);
  seen_.clear();
  seen_of_other_.clear();
  for (const ShardInventory& inventory : inventories) {
    seen_.push_back(inventory.checkpoints);
    seen_of_other_.push_back(inventory.other_checkpoints);
  }
}

CheckpointChoice Coordinator::ChooseOf(
    std::vector<CheckpointListing> listings) {
  std::optional<VersionId> newest;
  {
    MutexLock lock(&mutex_);
    newest = state_.checkpoints()->newest();
  }
  absl::optional<VersionId> known;
  if (newest.has_value()) known = *newest;
  // In this life of the coordinator, or, as a folder says, in a former one.
  const uint64_t begun = std::max(begun_anew_.value_or(0), BegunAnew(listings));
  for (CheckpointListing& listing : listings) {
    auto& states = listing.states;
    states.erase(std::remove_if(states.begin(), states.end(),
                                [&](const CheckpointState& state) {
                                  return state.id.made < begun;
                                }),
                 states.end());
  }
  if (known.has_value() && known->made < begun) known.reset();
  return ChooseCheckpoint(listings, known);
}

// Since it has begun anew.
bool Coordinator::HasSaved() const {
  MutexLock lock(&mutex_);
  const std::optional<VersionId> newest = state_.checkpoints().newest();
  return newest.has_value() && newest->made >= *begun_anew_;
}

CheckpointChoice Coordinator::Choose(const std::optional<RestoreCall>& order) {
  borrows_ = false;
  if (!options_.checkpoint.enabled) return {};
  std::vector<CheckpointListing> own;
  std::vector<CheckpointListing> other;
  {
    MutexLock lock(&mutex_);
    own = seen_;
    other = seen_of_other_;
  }
  CheckpointChoice choice;
  if (order.has_value()) {
    if (!order->begin_anew) {
      for (const VersionId& id : SealedCheckpoints(own)) {
        if (id.version != order->version) continue;
        if (order->made != 0 && id.made != order->made) continue;
        choice = NamedCheckpoint(own, id);
        break;
      }
    }
    choice.ordered = true;
    return choice;
  }
  // A person's word, given in the configuration: what was there before counts
  // for nothing. What this life of the job has saved does.
  if (!options_.checkpoint.restore && !begun_anew_.has_value()) return {};
  if (begun_anew_.has_value() && !HasSaved()) return {};
  choice = ChooseOf(own);
  // The word may have been about the folder that cannot be listed.
  if (NothingSinceBegunAnew(own)) choice.unreadable.clear();
  // Another job's was what the one before had begun with.
  if (!choice.id.has_value() && choice.unreadable.empty() &&
      BegunAnew(own) == 0 && !options_.checkpoint.restore_job.empty()) {
    choice = ChooseCheckpoint(other, absl::nullopt);
    choice.borrowed = true;
    borrows_ = true;
    if (!choice.id.has_value() && choice.unreadable.empty()) {
      choice.unreadable = absl::StrCat(
          "checkpoint.restore_job is ", Quoted(options_.checkpoint.restore_job),
          ", and no shard sees a checkpoint of it in ", FoldersText(other));
    }
  }
  if (choice.id.has_value()) {
    const auto refusal = refused_.find(*choice.id);
    if (refusal != refused_.end() && clock_->Now() < refusal->second.until) {
      choice.refused = refusal->second.why;
    }
  }
  return choice;
}

RecoveryDecision Coordinator::Decide(
    uint64_t epoch, const std::vector<ShardInventory>& inventories) {
  bool carried_out = false;
  std::optional<RestoreCall> order = TakeOrder(&carried_out);
  if (carried_out) {
    // What it has led to may be there yet.
    using Kind = RecoveryDecision::Kind;
    const Kind kind = DecideRecovery(inventories, options_.replicated, epoch,
                                     Choose(std::nullopt))
                          .kind;
    if (kind == Kind::kGoOn || kind == Kind::kLoad) order.reset();
  }
  if (order.has_value()) {
    const CheckpointChoice choice = Choose(order);
    if (!order->begin_anew && !choice.id.has_value()) {
      EndOrder(absl::NotFoundError(
          absl::StrCat("no shard sees a sealed checkpoint of version ",
                       order->version, Remedies())));
    } else {
      RecoveryDecision decision =
          DecideRecovery(inventories, options_.replicated, epoch, choice);
      if (decision.kind != RecoveryDecision::Kind::kWait) {
        by_order_ = true;
        absl::StrAppend(&decision.text, ", as an operator has said");
        if (order->begin_anew) {
          // Whatever was said of the former one, that it had finished as well.
          JobFacts facts = decision.plans.front().facts;
          facts = {epoch, facts.number + 1, ""};
          for (RecoverPlan& plan : decision.plans) plan.facts = facts;
        }
        return decision;
      }
      EndOrder(absl::FailedPreconditionError(decision.text));
    }
  }
  by_order_ = false;
  RecoveryDecision decision = DecideRecovery(inventories, options_.replicated,
                                             epoch, Choose(std::nullopt));
  MutexLock lock(&mutex_);
  // What shards have not heard of yet: that a finished job goes on, say.
  for (RecoverPlan& plan : decision.plans) {
    if (plan.facts < state_.facts()) plan.facts = state_.facts();
  }
  return decision;
}

// Before it is done: else a kill -9 of all right after the answer would have
// the former job back. One folder that has it is enough, since the word may be
// about another one that is broken.
absl::Status Coordinator::KeepBeginning(uint64_t epoch) {
  std::vector<char> kept(static_cast<size_t>(peers_.size()), 0);
  const absl::Status status = peers_.ForEach([&](int ordinal, ShardPeer* peer) {
    Phase phase;
    phase.kind = PhaseKind::kSeal;
    phase.epoch = epoch;
    phase.begins_anew = true;
    phase.line = epoch;
    const PhaseWatch::Call call(&phase_watch_, ordinal, phase);
    const absl::Status written = peer->RunPhase(phase).status();
    kept[static_cast<size_t>(ordinal)] = written.ok();
    return written;
  });
  if (status.ok() || SaysNothingOfFiles(status)) return status;
  if (std::count(kept.begin(), kept.end(), 1) > 0) {
    LogWarning("that the job begins anew is not kept in all folders: ",
               status.message());
    return absl::OkStatus();
  }
  const absl::Status refused = absl::FailedPreconditionError(absl::StrCat(
      "no folder can keep that the job begins anew, so that it does not: ",
      status.message(),
      "; checkpoint.restore: \"none\" says it at each start"));
  EndOrder(refused);
  return refused;
}

// Before any shard gives up what it has in memory for it.
absl::Status Coordinator::Verify(uint64_t epoch,
                                 const std::string& checkpoint) {
  return RunPhases([&](int) {
    Phase phase;
    phase.kind = PhaseKind::kVerify;
    phase.epoch = epoch;
    phase.checkpoint = checkpoint;
    return phase;
  });
}

// Before anything is done: what becomes of the checkpoints.
void Coordinator::NoteBeginning(uint64_t epoch,
                                const RecoveryDecision& decision) {
  using Kind = RecoveryDecision::Kind;
  const bool anew =
      decision.kind == Kind::kNothing || decision.kind == Kind::kUnseeded;
  if (by_order_ ? anew : !options_.checkpoint.restore) {
    if (by_order_ || !begun_anew_.has_value()) {
      begun_anew_ = anew ? epoch : decision.target.made;
    }
  }
  if (!options_.checkpoint.enabled || !anew) return;
  std::string text;
  MutexLock lock(&mutex_);
  const std::vector<CheckpointId> sealed = SealedCheckpoints(seen_);
  if (sealed.empty()) {
    // Nobody can tell folders that are new from folders that were emptied.
    text = absl::StrCat(
        "no shard sees a sealed checkpoint in ", FoldersText(seen_),
        HasUnsealed(seen_) ? ", where parts lie that were never sealed" : "",
        ": the job begins anew, by a Seed");
    LogInfo(text);
  } else {
    text = absl::StrCat(
        by_order_ ? "an operator has said that the job begins anew, by a Seed"
        : options_.checkpoint.restore
            ? absl::StrCat("an operator has said before that the job begins "
                           "anew, by a Seed, as ",
                           BegunAnewName(BegunAnew(seen_)), " says")
            : "checkpoint.restore is \"none\": the job begins anew, by a Seed",
        "; ", sealed.size(), " checkpoints stay in ", FoldersText(seen_),
        ", the newest of ", CheckpointText(sealed.front()));
    LogWarning(text);
  }
  state_.checkpoints()->NoteRestore(text);
  if (decision.kind == Kind::kNothing && by_order_) {
    state_.AdoptFacts(
        decision.plans.empty() ? JobFacts() : decision.plans.front().facts, 0);
  }
}

// --- A person is waited for --------------------------------------------------

std::string Coordinator::Remedies() const {
  std::vector<CheckpointId> complete;
  std::string folders;
  {
    MutexLock lock(&mutex_);
    complete = CompleteCheckpoints(seen_);
    folders = FoldersText(seen_);
  }
  std::string text = "; put back what is missing";
  for (const CheckpointId& id : complete) {
    if (refused_.count(id) != 0) continue;
    absl::StrAppend(&text, ", or go on from ", CheckpointText(id), " with `",
                    "aggctl restore ", CheckpointFolderName(id), "`");
    break;
  }
  return absl::StrCat(text,
                      ", or begin anew with `aggctl restore none` (or "
                      "checkpoint.restore: \"none\")");
}

absl::Status Coordinator::AwaitPerson(const std::string& what) {
  awaits_person_ = true;
  std::string text = absl::StrCat("the job waits, since it does not begin ",
                                  "anew or go back by itself: ", what);
  if (text.size() > kMaxRefusalBytes) {
    text.resize(kMaxRefusalBytes);
    text = ValidUtf8(text);  // a path's last character may be cut
    text += "..";
  }
  return absl::FailedPreconditionError(absl::StrCat(text, Remedies()));
}

absl::Status Coordinator::Refused(const VersionId& id,
                                  const absl::Status& status) {
  const absl::Status named = absl::Status(
      status.code(), absl::StrCat("checkpoint ", CheckpointText(id),
                                  " cannot be loaded: ", status.message()));
  if (SaysNothingOfFiles(status)) return named;
  if (by_order_) {
    // What the job does now it decides by itself, as if nobody had said a word.
    const absl::Status refused = absl::FailedPreconditionError(named.message());
    EndOrder(refused);
    return refused;
  }
  refused_[id] = {std::string(status.message()), clock_->Now() + kAskAgain};
  return AwaitPerson(std::string(named.message()));
}

// --- An operator's word ------------------------------------------------------

RestoreResult Coordinator::Found() const {
  RestoreResult result;
  for (const CheckpointId& id : SealedCheckpoints(seen_)) {
    result.found.push_back(
        {id, MissingText(NamedCheckpoint(seen_, id), /*shards=*/{})});
  }
  return result;
}

absl::StatusOr<RestoreCall> Coordinator::ParseRestore(const std::string& text) {
  RestoreCall call;
  if (text.empty()) {
    call.look = true;
    return call;
  }
  if (text == "none") {
    call.begin_anew = true;
    return call;
  }
  const absl::optional<CheckpointId> id = ParseCheckpointFolderName(text);
  if (id.has_value()) {
    call.made = id->made;
    call.version = id->version;
    return call;
  }
  if (absl::SimpleAtoi(text, &call.version)) return call;
  return FieldError("checkpoint", Quoted(text.substr(0, 100)),
                    "VERSION; MADE-VERSION, as its folder is called; none");
}

void Coordinator::Restore(
    const RestoreCall& call,
    std::function<void(absl::StatusOr<RestoreResult>)> done) {
  if (!options_.checkpoint.enabled) {
    return done(absl::FailedPreconditionError(
        "checkpoint.path is not configured: there are no checkpoints"));
  }
  RestoreResult found;
  bool running = false;
  {
    MutexLock lock(&mutex_);
    found = Found();
    running = state_.epoch_on() && state_.job()->seeded();
    found.text = state_.epoch_on()
                     ? state_.checkpoints()->Status(clock_->Now()).restore
                     : state_.Status(clock_->Now()).message;
  }
  if (call.look) return done(found);
  if (call.begin_anew && running) {
    return done(absl::FailedPreconditionError(
        "the job has parameters, which would be lost: stop it, and start it "
        "with checkpoint.restore: \"none\", or under another name"));
  }
  Order order;
  order.kind =
      call.begin_anew ? Order::Kind::kBeginAnew : Order::Kind::kCheckpoint;
  order.restore = call;
  order.done = [done, found](absl::StatusOr<std::string> text) {
    if (!text.ok()) return done(text.status());
    RestoreResult result = found;
    result.text = *std::move(text);
    done(std::move(result));
  };
  const absl::Status given = GiveOrder(
      std::move(order),
      OrderlyStop(absl::StrCat("an operator has the job go back to version ",
                               call.version)));
  if (!given.ok()) done(given);
}

void Coordinator::Resume(
    std::function<void(absl::StatusOr<ResumeResult>)> done) {
  absl::StatusOr<ResumeResult> resumed = absl::UnknownError("");
  {
    MutexLock lock(&mutex_);
    resumed = order_.has_value() ? absl::FailedPreconditionError(
                                       "another restore or resume is under way")
                                 : state_.Resume();
  }
  if (!resumed.ok()) return done(resumed.status());
  Order order;
  order.kind = Order::Kind::kResume;
  order.resume = *resumed;
  order.done = [done, resumed](const absl::StatusOr<std::string>& text) {
    if (!text.ok()) return done(text.status());
    done(resumed);
  };
  const absl::Status given = GiveOrder(
      std::move(order), OrderlyStop("an operator has the finished job go on"));
  if (given.ok()) return;
  {
    // The facts said already that the job goes on.
    MutexLock lock(&mutex_);
    state_.NoteChange();
  }
  done(given);
}

absl::Status Coordinator::GiveOrder(Order order, const absl::Status& why) {
  DeferredCalls calls;
  {
    MutexLock lock(&mutex_);
    if (stop_ || state_.draining()) {
      return absl::UnavailableError(
          "draining: the coordinator is shutting down");
    }
    if (order_.has_value()) {
      return absl::FailedPreconditionError(
          "another restore or resume is under way");
    }
    order_ = std::move(order);
    order_->until = clock_->Now() + kOrderTimeout;
    // Also one that is beginning: what it does was decided without the order,
    // and CompleteOrder would take it for what the order has led to.
    calls = state_.EndEpoch(why, clock_->Now());
    changed_.NotifyAll();
  }
  calls.Run();
  return absl::OkStatus();
}

std::optional<RestoreCall> Coordinator::TakeOrder(bool* carried_out) {
  MutexLock lock(&mutex_);
  if (!order_.has_value()) return {};
  order_->taken = true;
  if (order_->kind == Order::Kind::kResume) return {};
  *carried_out = order_->carried_out;
  return order_->restore;
}

void Coordinator::PutOrderBack() {
  MutexLock lock(&mutex_);
  if (order_.has_value() && !order_->carried_out) order_->taken = false;
}

// It must not be done hours later, when a shard is back and its caller has
// turned to something else. What a recovery has begun stays: to leave it half
// done would cost more.
void Coordinator::ExpireOrder() {
  std::function<void(absl::StatusOr<std::string>)> done;
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    if (!order_.has_value() || order_->taken || clock_->Now() < order_->until) {
      return;
    }
    const absl::Status accepting = state_.CheckAcceptingCalls();
    status = absl::UnavailableError(absl::StrCat(
        "not begun within ", absl::FormatDuration(kOrderTimeout),
        ", and not done later either: ",
        accepting.ok() ? "a phase of the former epoch has not ended"
                       : accepting.message(),
        "; the call may be repeated"));
    // The facts said already that the job goes on.
    if (order_->kind == Order::Kind::kResume) state_.NoteChange();
    done = std::move(order_->done);
    order_.reset();
  }
  LogWarning("what an operator has asked for is dropped: ", status.message());
  done(status);
}

bool Coordinator::Resumes() const {
  MutexLock lock(&mutex_);
  return order_.has_value() && order_->kind == Order::Kind::kResume;
}

void Coordinator::EndOrder(const absl::StatusOr<std::string>& result) {
  std::function<void(absl::StatusOr<std::string>)> done;
  {
    MutexLock lock(&mutex_);
    if (!order_.has_value()) return;
    done = std::move(order_->done);
    order_.reset();
  }
  LogWarning("what an operator has asked for ",
             result.ok() ? "is done: " : "cannot be done: ",
             result.ok() ? *result : result.status().message());
  done(result);
}

// What was answered holds also if all processes are killed at once: so a
// checkpoint has it first, where there are any.
void Coordinator::CompleteOrder(const std::string& text) {
  std::optional<Order::Kind> kind;
  bool finished = false;
  bool has_it = false;
  {
    MutexLock lock(&mutex_);
    if (!order_.has_value() || order_->carried_out || !state_.epoch_on()) {
      return;
    }
    order_->carried_out = true;
    kind = order_->kind;
    finished = state_.finished();
    has_it =
        state_.job()->seeded() && state_.checkpoints()->Has(state_.job()->id());
  }
  if (*kind == Order::Kind::kResume && finished) {
    return EndOrder(absl::FailedPreconditionError(absl::StrCat(
        "the job went back to a version at which it had finished: ", text)));
  }
  if (*kind == Order::Kind::kBeginAnew || !options_.checkpoint.enabled) {
    return EndOrder(text);
  }
  if (has_it) {
    const absl::Status sealed = SealFacts();
    if (sealed.ok()) return EndOrder(text);
    return EndOrder(sealed);
  }
  MutexLock lock(&mutex_);
  state_.checkpoints()->Request(
      [this, text](const absl::StatusOr<TakenCheckpoint>& taken) {
        if (taken.ok()) return EndOrder(text);
        EndOrder(absl::Status(
            taken.status().code(),
            absl::StrCat(text,
                         "; but no checkpoint has it yet, so that it is "
                         "forgotten if all shards are lost: ",
                         taken.status().message())));
      });
}

// The last checkpoint of a finished job says that it has finished. Its parts
// stay as they are.
absl::Status Coordinator::SealFacts() {
  VersionId id;
  uint64_t epoch = 0;
  std::string facts;
  {
    MutexLock lock(&mutex_);
    id = state_.job()->id();
    epoch = state_.job()->epoch();
    facts = FactsText(state_.facts());
  }
  CheckpointManifest manifest;
  AGG_ASSIGN_OR_RETURN(const std::string text,
                       ReadCheckpoint(epoch, id, &manifest));
  manifest.facts = facts;
  AGG_ASSIGN_OR_RETURN(JobRecord record, ParseJobRecord(manifest.record));
  record.started = false;  // as the job has it now
  manifest.record = TextOf(std::move(record));
  return RunPhases([&](int) {
    Phase phase;
    phase.kind = PhaseKind::kSeal;
    phase.epoch = epoch;
    phase.checkpoint = CheckpointManifestJson(manifest);
    phase.keep = std::numeric_limits<int>::max();
    phase.line = std::numeric_limits<uint64_t>::max();  // nothing is removed
    return phase;
  });
}

}  // namespace agg
