// What the coordinator's own thread does: attach shards, change membership,
// run rounds, one thing after another.
#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/log.h"
#include "server/round/coordinator_impl.h"

namespace agg {
namespace {

constexpr absl::Duration kAttachInterval = absl::Seconds(1);

uint64_t NewSession() {
  std::random_device device;
  uint64_t session = 0;
  while (session == 0) {
    session = (static_cast<uint64_t>(device()) << 32) | device();
  }
  return session;
}

RoundOutcome OutcomeOf(const RoundReport& report) {
  const Decision& decision = report.decision;
  RoundOutcome outcome;
  outcome.epoch = report.epoch;
  outcome.round = report.round;
  outcome.version = report.version;
  outcome.kind = report.applied ? OutcomeKind::kApplied : OutcomeKind::kSkipped;
  outcome.excluded_ranks = decision.excluded_ranks;
  for (const RowInfo& row : report.rows) {
    if (report.applied &&
        std::count(decision.excluded_ranks.begin(),
                   decision.excluded_ranks.end(), row.rank) == 0) {
      outcome.ranks.push_back(row.rank);
    }
  }
  outcome.learning_rate = decision.learning_rate;
  outcome.gain = decision.gain;
  outcome.tau = decision.tau;
  outcome.orthogonality = decision.orthogonality;
  outcome.finished = decision.finished;
  outcome.message = report.message;
  outcome.loss = report.loss;
  outcome.combined_norm = decision.combined_norm;
  return outcome;
}

// What the decision did other than plainly applying the rule.
std::string Remarks(const Decision& decision) {
  std::vector<std::string> remarks;
  if (!decision.excluded_ranks.empty()) {
    remarks.push_back(
        absl::StrCat("excluded non-finite rows of ranks ",
                     absl::StrJoin(decision.excluded_ranks, ",")));
  }
  if (decision.compensated) remarks.push_back("used compensated Grams");
  if (decision.adacons_fallback) {
    remarks.push_back("the AdaCons guard fell back to the mean");
  }
  return absl::StrJoin(remarks, "; ");
}

void RunAll(std::vector<std::function<void()>>* closures) {
  for (std::function<void()>& closure : *closures) closure();
}

}  // namespace

bool Coordinator::Impl::RunOnce() {
  SpreadLoss();
  return RunOperation() || AttachIfDue() || ExpireIfDue() || SeedIfDue() ||
         RoundIfDue();
}

void Coordinator::Impl::Loop() {
  for (;;) {
    while (RunOnce()) {
      MutexLock lock(&mutex_);
      if (stop_) return;
    }
    MutexLock lock(&mutex_);
    if (stop_) return;
    if (!operations_.empty() || spread_loss_) continue;
    // A commit between RunOnce and here is seen by asking again.
    const absl::Time now = clock_->Now();
    const absl::Time wake = NextWake();
    if (wake > now)
      changed_.WaitFor(&mutex_, std::min(wake - now, absl::Seconds(1)));
  }
}

absl::Time Coordinator::Impl::NextWake() const {
  if (!epoch_on_) return next_attach_at_;
  absl::Time wake = absl::InfiniteFuture();
  for (const auto& [rank, member] : state_->members()) {
    wake = std::min(wake, member.lease_end);
  }
  if (draining_ || state_->finished()) return wake;
  if (state_->seed_committed().has_value()) return absl::InfinitePast();
  if (!state_->seeded()) return wake;
  const CloseDecision decision =
      DecideClose(close_options_, state_->close_snapshot(), clock_->Now());
  if (decision.close) return absl::InfinitePast();
  wake = std::min(wake, decision.ask_again_at);
  if (warned_round_ != state_->version()) {
    wake = std::min(wake, state_->waiting_since() + options_.straggler_warning);
  }
  return wake;
}

bool Coordinator::Impl::RunOperation() {
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

bool Coordinator::Impl::AttachIfDue() {
  uint64_t epoch;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = clock_->Now();
    if (epoch_on_ || draining_ || now < next_attach_at_) return false;
    next_attach_at_ = now + kAttachInterval;
    // P14: above every former epoch, of a former process, too.
    epoch = std::max(last_epoch_ + 1,
                     static_cast<uint64_t>(absl::ToUnixMicros(now)));
    last_epoch_ = epoch;
  }
  absl::Status status = peers_.ForEach([this, epoch](int, ShardPeer* peer) {
    return peer->Attach(epoch, [this, epoch](absl::Status reason) {
      LoseEpoch(epoch, reason);
    });
  });
  MutexLock lock(&mutex_);
  if (!status.ok()) {
    if (state_ == nullptr) {
      no_epoch_ = absl::UnavailableError(
          absl::StrCat("waiting for all shards: ", status.message()));
    }
    return true;
  }
  if (last_epoch_ != epoch) return true;  // lost again already
  LogInfo(state_ == nullptr ? "all shards are attached, epoch "
                            : "all shards are attached again; the job goes on "
                              "after a new Seed, optimizer state reset, epoch ",
          epoch);
  state_ = std::make_unique<JobState>(options_, epoch, clock_->Now());
  epoch_on_ = true;
  no_epoch_ = absl::OkStatus();
  warned_round_.reset();
  return true;
}

void Coordinator::Impl::LoseEpoch(uint64_t epoch, const absl::Status& reason) {
  Closures closures;
  {
    MutexLock lock(&mutex_);
    if (epoch != last_epoch_) return;
    ++last_epoch_;  // an Attach under way for this epoch comes too late
    if (!epoch_on_) return;
    epoch_on_ = false;
    spread_loss_ = true;
    no_epoch_ = absl::UnavailableError(absl::StrCat(
        "shard lost: ", reason.message(), "; epoch ", epoch, " is over"));
    next_attach_at_ = clock_->Now() + kAttachInterval;
    closures = FailWaiters(no_epoch_);
    Closures told =
        TellAll(JobEvent{JobEventKind::kShardLost, state_->version(),
                         std::string(no_epoch_.message())});
    closures.insert(closures.end(), told.begin(), told.end());
    attendees_.clear();
    changed_.NotifyAll();
    LogError(no_epoch_.message());
  }
  RunAll(&closures);
}

void Coordinator::Impl::SpreadLoss() {
  absl::Status reason;
  uint64_t epoch;
  {
    MutexLock lock(&mutex_);
    if (!spread_loss_) return;
    spread_loss_ = false;
    reason = no_epoch_;
    epoch = state_->epoch();
  }
  peers_
      .ForEach([&](int, ShardPeer* peer) {
        peer->Lose(epoch, reason);
        return absl::OkStatus();
      })
      .IgnoreError();
}

// --- Membership --------------------------------------------------------------

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
  return state_->FinishJoin(call, change, clock_->Now());
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
  }
  done(std::move(result));
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
      const auto attendee = attendees_.find(session);
      if (attendee == attendees_.end()) continue;
      closures.push_back([callback = attendee->second.on_event, event = event] {
        callback(event);
      });
    }
    for (const auto& [session, reason] : effects.ended) {
      attendees_.erase(session);
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
  RunAll(&closures);
}

// --- Waiters -----------------------------------------------------------------

Coordinator::Impl::Closures Coordinator::Impl::AnswerWaiters() {
  Closures closures;
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    absl::StatusOr<std::optional<RoundOutcome>> answer = absl::UnknownError("");
    if (it->kind == PushKind::kSeed) {
      CommitCall call;
      call.epoch = state_->epoch();
      call.session = it->session;
      call.kind = PushKind::kSeed;
      if (state_->seeded()) {
        answer = state_->Commit(call, clock_->Now());
      } else {
        answer = std::optional<RoundOutcome>();
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
  for (const auto& [session, attendee] : attendees_) {
    closures.push_back(
        [callback = attendee.on_event, event] { callback(event); });
  }
  return closures;
}

// --- Rounds ------------------------------------------------------------------

bool Coordinator::Impl::SeedIfDue() {
  uint64_t epoch;
  uint64_t session;
  {
    MutexLock lock(&mutex_);
    if (!Gate().ok() || !state_->seed_committed().has_value()) return false;
    epoch = state_->epoch();
    session = *state_->seed_committed();
  }
  absl::Status status = engine_.PublishSeed(session);
  if (!status.ok()) {
    LoseEpoch(epoch, status);
    return true;
  }
  {
    MutexLock lock(&mutex_);
    if (!Gate(epoch).ok()) return true;
    state_->FinishSeed(clock_->Now());
    LogInfo("seeded: version 0 is published, epoch ", epoch);
  }
  DeliverEffects();
  return true;
}

void Coordinator::Impl::WarnOfStragglers(absl::Time now) {
  if (options_.straggler_warning <= absl::ZeroDuration() ||
      warned_round_ == state_->version() ||
      now < state_->waiting_since() + options_.straggler_warning) {
    return;
  }
  warned_round_ = state_->version();
  LogWarning("round ", state_->version(), " waits since ",
             absl::FormatDuration(now - state_->waiting_since()), " for ranks ",
             absl::StrJoin(state_->MissingRanks(), ","),
             options_.round_timeout > absl::ZeroDuration()
                 ? ""
                 : " (round_timeout is off)");
}

bool Coordinator::Impl::RoundIfDue() {
  std::map<int32_t, Contribution> contributions;
  uint64_t epoch;
  uint64_t round;
  absl::Duration waited;
  {
    MutexLock lock(&mutex_);
    if (!Gate().ok() || !state_->seeded() || state_->finished()) return false;
    const absl::Time now = clock_->Now();
    const CloseSnapshot snapshot = state_->close_snapshot();
    const CloseDecision decision = DecideClose(close_options_, snapshot, now);
    if (decision.start) state_->Start();
    if (!decision.close) {
      if (snapshot.num_contributions > 0) WarnOfStragglers(now);
      return false;
    }
    state_->BeginClosing();
    in_round_ = true;
    contributions = state_->contributions();
    epoch = state_->epoch();
    round = state_->version();
    waited = now - snapshot.opened_at;
  }
  RunRound(epoch, round, contributions, waited);
  return true;
}

void Coordinator::Impl::RunRound(
    uint64_t epoch, uint64_t round,
    const std::map<int32_t, Contribution>& contributions,
    absl::Duration waited) {
  absl::StatusOr<RoundReport> report = engine_.Run(round, contributions);
  if (!report.ok()) LoseEpoch(epoch, report.status());
  {
    MutexLock lock(&mutex_);
    in_round_ = false;
    changed_.NotifyAll();
    if (!report.ok() || !epoch_on_ || state_->epoch() != epoch) return;
    const std::string remarks = Remarks(report->decision);
    if (!remarks.empty()) {
      absl::StrAppend(&report->message, report->message.empty() ? "" : "; ",
                      remarks);
    }
    report->durations.wait = waited;
    RoundOutcome outcome = OutcomeOf(*report);
    state_->FinishRound(outcome, clock_->Now());
    outcome.finished = state_->finished();
    last_outcome_ = outcome;
    if (!report->message.empty()) {
      LogWarning("round ", round, ": ", report->message);
    }
  }
  DeliverEffects();
  engine_.AddStatistics(&*report);
  if (on_report_ != nullptr) on_report_(*report);
}

}  // namespace agg
