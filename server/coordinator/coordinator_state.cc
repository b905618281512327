// Epochs, rounds, the rule and other facts, and stops, as changes of
// plain state.
#include "server/coordinator/coordinator_state.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/dcheck.h"
#include "server/base/job_phase.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"
#include "server/combine/options.h"
#include "server/coordinator/checkpoint_schedule.h"
#include "server/coordinator/close_policy.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/job_record.h"
#include "server/coordinator/job_state.h"
#include "server/coordinator/round_watches.h"
#include "server/round/round_report.h"
#include "server/round/shard_peer.h"
#include "server/round/worker_transports.h"

namespace agg {

namespace {

constexpr absl::Duration kAttachInterval = absl::Seconds(1);
constexpr absl::Duration kStandbyLogInterval = absl::Minutes(1);
// Folders are listed each time; what a person puts back is seen soon enough.
constexpr absl::Duration kAwaitInterval = absl::Seconds(2);
constexpr absl::Duration kTellInterval = absl::Minutes(1);

}  // namespace

CoordinatorState::CoordinatorState(const CoordinatorOptions& options)
    : options_(options),
      arrivals_(options.round_timeout_mad),
      no_epoch_(absl::UnavailableError("waiting for all shards")),
      checkpoints_(options.checkpoint),
      combine_(options.combine) {}

absl::Status CoordinatorState::CheckAcceptingCalls(
    std::optional<uint64_t> epoch) const {
  if (draining_) {
    return absl::UnavailableError("draining: the coordinator is shutting down");
  }
  if (!epoch_on_) return no_epoch_;
  return epoch.has_value() ? job_->CheckEpoch(*epoch) : absl::OkStatus();
}

// --- Epochs ------------------------------------------------------------------

std::optional<uint64_t> CoordinatorState::NextEpochIfDue(absl::Time now) {
  // A loss goes to the shards before they are attached again.
  if (epoch_on_ || draining_ || has_loss() || now < next_attach_at_) {
    return std::nullopt;
  }
  next_attach_at_ = now + kAttachInterval;
  // P14: the clock makes it larger than any epoch of a former process.
  last_epoch_ =
      std::max(last_epoch_ + 1, static_cast<uint64_t>(absl::ToUnixMicros(now)));
  return last_epoch_;
}

uint64_t CoordinatorState::RaiseEpoch(uint64_t epoch, uint64_t promise) {
  // Lost meanwhile, or above all promises: then it stays.
  if (epoch != last_epoch_ || promise < epoch) return epoch;
  last_epoch_ = promise + 1;
  return last_epoch_;
}

bool CoordinatorState::StandBy(const std::string& other, absl::Time now) {
  if (other.empty()) {
    if (!standby_logged_at_.has_value()) return false;
    LogInfo("the other coordinator has gone: attaching the shards");
    standby_logged_at_.reset();
    no_epoch_ = absl::UnavailableError("waiting for all shards");
    return false;
  }
  no_epoch_ = absl::UnavailableError(absl::StrCat(
      "standby: ", other, "; this one takes over when nobody answers there"));
  if (!standby_logged_at_.has_value() ||
      now >= *standby_logged_at_ + kStandbyLogInterval) {
    LogWarning(no_epoch_.message());
    standby_logged_at_ = now;
  }
  return true;
}

void CoordinatorState::AttachFailed(const absl::Status& status) {
  // After the first epoch callers hear why the last one ended, too.
  if (job_ == nullptr) {
    NoteRecovery(absl::StrCat("waiting for all shards: ", status.message()));
  } else {
    NoteRecovery(absl::StrCat("waiting for all shards again: ",
                              status.message(), "; ", lost_because_));
  }
}

void CoordinatorState::AwaitPerson(const std::string& text, absl::Time now) {
  NoteRecovery(text);
  next_attach_at_ = now + kAwaitInterval;
  if (text == told_ && now < told_at_ + kTellInterval) return;
  LogError(text);
  told_ = text;
  told_at_ = now;
}

void CoordinatorState::NoteAttach(int ordinal, const absl::Status& status) {
  const size_t index = static_cast<size_t>(ordinal);
  if (index >= shard_errors_.size()) {
    shard_errors_.resize(index + 1, "not reached yet");
  }
  shard_errors_[index] = std::string(status.message());
}

void CoordinatorState::LogEpoch(uint64_t epoch,
                                const std::optional<JobStart>& start) const {
  if (start.has_value()) {
    LogInfo("the job goes on from version ", start->id.version, " with ",
            start->members.size(), " workers that were in, epoch ", epoch);
  } else if (job_ != nullptr && job_->seeded()) {
    LogError(
        "the parameters are lost: the job goes on after a new Seed, "
        "optimizer state reset, epoch ",
        epoch);
  } else {
    LogInfo("all shards are attached, epoch ", epoch);
  }
}

void CoordinatorState::NoteRecovery(const std::string& what) {
  recovering_ = what;
  no_epoch_ = absl::UnavailableError(what);
}

bool CoordinatorState::BeginEpoch(uint64_t epoch, std::optional<JobStart> start,
                                  absl::Time now) {
  if (last_epoch_ != epoch) return false;
  LogEpoch(epoch, start);
  const int num_shards = static_cast<int>(shard_lives_.size());
  recovering_.clear();
  told_.clear();
  lost_after_end_.clear();
  if (!start.has_value()) {
    job_ = std::make_unique<JobState>(options_, num_shards, &arrivals_, epoch,
                                      now);
    if (next_combine_.has_value()) {
      // Nothing is left of the rounds before it.
      combine_ = *std::exchange(next_combine_, std::nullopt);
      rule_set_ = JobChanges();
      rule_set_.rule = ChangeTo(combine_);
      NoteChange();
    }
    facts_are_new_ |= facts_.number > 0;  // a shard that is new lacks them
  } else {
    const std::optional<VersionId> restored = start->restored;
    const bool borrowed = start->borrowed;
    if (!start->restore.empty()) checkpoints_.NoteRestore(start->restore);
    const VersionId id = start->id;
    const bool rewound = id.made == epoch && job_ != nullptr;
    if (rewound) ++num_rewinds_;
    job_ = std::make_unique<JobState>(options_, num_shards, &arrivals_, epoch,
                                      now, *std::move(start));
    if (restored.has_value() || !checkpoints_.began()) {
      checkpoints_.Begin(id, restored, now, borrowed);
    }
  }
  job_->KeepEvicted(evicted_);
  ApplyEnd();
  epoch_on_ = true;
  no_epoch_ = absl::OkStatus();
  return true;
}

DeferredCalls CoordinatorState::LoseEpoch(uint64_t epoch,
                                          const absl::Status& reason,
                                          absl::Time now) {
  if (epoch != last_epoch_) return {};
  const bool recoverable = options_.replicated || options_.checkpoint.enabled;
  if (epoch_on_ && job_->finished() && !recoverable) {
    if (!lost_after_end_.empty()) return {};  // it has been said
    // Another epoch would discard the last version on the shards that live.
    lost_after_end_ =
        absl::StrCat("finished at version ", job_->version(),
                     "; a shard's part of it is gone: ", reason.message());
    LogWarning(lost_after_end_);
    return {};
  }
  return EndLastEpoch(reason, now);
}

DeferredCalls CoordinatorState::EndEpoch(const absl::Status& reason,
                                         absl::Time now) {
  DeferredCalls calls = EndLastEpoch(reason, now);
  next_attach_at_ = now;
  return calls;
}

DeferredCalls CoordinatorState::EndLastEpoch(const absl::Status& reason,
                                             absl::Time now) {
  const uint64_t epoch = last_epoch_;
  // If shards are being attached to this epoch now, BeginEpoch comes too late.
  ++last_epoch_;
  if (!epoch_on_) return {};
  epoch_on_ = false;
  no_epoch_ = absl::UnavailableError(absl::StrCat(
      "shard lost: ", reason.message(), "; epoch ", epoch, " is over"));
  lost_because_ = std::string(no_epoch_.message());
  recovering_ = lost_because_;
  // Until the next attempt: the shards that live drop the epoch, too.
  shard_errors_.assign(shard_errors_.size(), "the epoch is over");
  loss_ = EpochLoss{epoch, no_epoch_};
  next_attach_at_ = now + kAttachInterval;
  // A stop in good order is no error, least of all while this process stops.
  LogLine(draining_               ? LogLevel::kInfo
          : IsOrderlyStop(reason) ? LogLevel::kWarning
                                  : LogLevel::kError,
          no_epoch_.message());
  DeferredCalls calls = waiters_.FailAll(no_epoch_);
  calls.Add(reductions_.FailAll(no_epoch_));
  calls.Add(Broadcast({JobEventKind::kShardLost, job_->version(),
                       std::string(no_epoch_.message())}));
  // Streams of the former epoch may still be open; their ends mean nothing.
  event_streams_.ForgetAll();
  job_->StopAwaiting();
  return calls;
}

// --- Rounds ------------------------------------------------------------------

bool CoordinatorState::FailJobIfDue(absl::Time now) {
  return CheckAcceptingCalls().ok() && job_->FailIfDue(now);
}

std::optional<ClosingRound> CoordinatorState::CloseRoundIfDue(absl::Time now) {
  if (!CheckAcceptingCalls().ok() ||
      NextHandover(now) != Handover::Step::kNone) {
    return std::nullopt;
  }
  std::optional<ClosingRound> round = job_->CloseIfDue(now);
  if (round.has_value()) round->combine = combine_;
  return round;
}

void CoordinatorState::FinishRound(const ClosingRound& round, absl::Time now,
                                   RoundReport* report) {
  // All shards have published it (P17), though the epoch may have ended since:
  // then the next one begins with this version, and job_ has to know of it.
  AGG_DCHECK(job_->epoch() == round.epoch);
  report->says_equal_rows = equal_rows_.Note(*report);
  CompleteReport(round, now, report);
  report->history = job_->history();
  RoundResult outcome = OutcomeOf(*report);
  const uint64_t num_skipped = job_->skipped().length();
  const std::string failure = job_->WatchRound(*report, now);
  job_->FinishRound(&outcome, now, failure);
  AdoptNextCombination();
  recent_rounds_.Add(*report, std::move(outcome));
  const RoundLine line = LineOf(*report, job_->skipped());
  if (!line.text.empty()) {
    LogWarningOf(line.reason, "round ", round.round, ": ", line.text);
  }
  if (report->applied && num_skipped > 1) {
    LogInfoOf("applied after skipped ones", "round ", round.round,
              " was applied, after ", num_skipped, " that were skipped");
  }
}

absl::Time CoordinatorState::NextWake(absl::Time now) const {
  if (!epoch_on_) return draining_ ? absl::InfiniteFuture() : next_attach_at_;
  // They came while those before them were sent.
  if (facts_are_new_) return absl::InfinitePast();
  if (reductions_.open() && reductions_.Due(ReductionJob())) {
    return absl::InfinitePast();
  }
  absl::Time wake = absl::InfiniteFuture();
  for (const auto& [rank, member] : job_->members()) {
    wake = std::min(wake, member.lease_end);
  }
  if (job_->seeded()) {
    wake = std::min(wake, checkpoints_.NextDue(job_->id(), job_->finished()));
  }
  if (job_->waving()) {
    if (NextWave().kind != WaveStep::Kind::kWait) return absl::InfinitePast();
    // Else nobody is told (SayWhoIsWaitedFor).
    if (draining_ || job_->finished()) return wake;
    return std::min(wake, job_->next_saying_at());
  }
  const Handover::Step handover = NextHandover(now);
  if (handover == Handover::Step::kWait) {
    return std::min(wake, handover_.deadline());
  }
  if (handover != Handover::Step::kNone) return absl::InfinitePast();
  if (draining_ || job_->finished()) return wake;
  if (job_->seed_committed().has_value()) return absl::InfinitePast();
  wake = std::min(wake, job_->next_saying_at());
  if (!job_->seeded()) return wake;
  const CloseDecision decision = job_->Decide(now);
  if (decision.close) return absl::InfinitePast();
  return std::min(wake, decision.ask_again_at);
}

// The rule, and what else changes between two rounds (P37), as changes of plain
// state.

// --- The rule ----------------------------------------------------------------

absl::StatusOr<CombineOptions> CoordinatorState::Changed(
    const CombineOptions& before, const RuleChange& change) const {
  absl::StatusOr<CombineOptions> after =
      ChangedCombination(before, change, options_.workers);
  if (!after.ok() || !options_.pipelined) return after;
  AGG_RETURN_IF_ERROR(CheckPipelining(*after));
  return after;
}

absl::Status CoordinatorState::CheckSetRule() const {
  if (draining_) return CheckAcceptingCalls();
  if (finished()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job has finished at version ", job_->version(), ": ",
                     job_->end_reason()));
  }
  // What the shards have kept would undo it when they are attached.
  if (!epoch_on_) {
    return absl::UnavailableError(absl::StrCat(
        "no rule is set before all shards are attached; try again then: ",
        no_epoch_.message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<RuleChangeResult> CoordinatorState::SetRule(
    const RuleChange& change, const CombinationCheck& check) {
  const absl::Status may = CheckSetRule();
  if (!may.ok()) return may;
  // Two changes before the next round add up.
  const CombineOptions& base = next_combine_.value_or(combine_);
  AGG_ASSIGN_OR_RETURN(CombineOptions after, Changed(base, change));
  RuleChangeResult result;
  result.before = NamesOf(combine_);
  result.after = NamesOf(after);
  if (check != nullptr) {
    AGG_RETURN_IF_ERROR(check(result.after, job_->manifest()));
  }
  const double learning_rate = after.schedule.learning_rate;
  rule_set_ = JobChanges();
  rule_set_.rule = ChangeTo(job_->seeded() ? combine_ : after);
  next_combine_ = std::move(after);
  if (job_->seeded()) {
    // The open round goes on as it began, whatever it waits for: workers may
    // have set their rows up for it.
    result.first_round = job_->version() + 1;
    rule_set_.next_rule = ChangeTo(*next_combine_);
    rule_set_.next_round = result.first_round;
  } else {
    AdoptNextCombination();
  }
  NoteChange();
  LogInfo("from round ", result.first_round, " on: rule ", result.after.rule,
          ", scope ", result.after.scope, ", step scale ",
          result.after.step_scale, ", learning rate ", learning_rate);
  return result;
}

// --- Small reductions beside the model (P51) ---------------------------------

SmallReductions::Job CoordinatorState::ReductionJob() const {
  SmallReductions::Job job;
  job.version = job_->version();
  job.seeded = job_->seeded();
  job.started = job_->started() || job_->finished();
  job.workers = options_.workers;
  for (const auto& [rank, member] : job_->members()) {
    job.members.push_back(
        {rank, member.first_round, job_->contributions().count(rank) > 0});
  }
  return job;
}

DeferredCalls CoordinatorState::Reduce(uint64_t epoch, ReduceCall call,
                                       absl::Time now,
                                       SmallReductions::Done done,
                                       uint64_t* number) {
  *number = 0;
  absl::Status status = CheckAcceptingCalls(epoch);
  if (status.ok()) status = SmallReductions::Check(call);
  absl::StatusOr<int32_t> rank = absl::UnknownError("not asked");
  if (status.ok()) {
    rank = job_->sessions().Rank(call.session);
    status = rank.status();
  }
  if (!status.ok()) {
    DeferredCalls refused;
    refused.Add([done = std::move(done), status] { done(status); });
    return refused;
  }
  return reductions_.Add(std::move(call), *rank, ReductionJob(), now,
                         std::move(done), number);
}

void CoordinatorState::MakeReduction() {
  if (!epoch_on_ || !reductions_.open()) return;
  if (reductions_.CloseIfDue(ReductionJob())) NoteChange();
}

DeferredCalls CoordinatorState::SayWhoReducesNot(absl::Time now) {
  if (!epoch_on_ || !reductions_.open()) return {};
  return reductions_.AskAgain(ReductionJob(), now);
}

// --- Facts -------------------------------------------------------------------

void CoordinatorState::NoteChange() {
  // With the round that the newest rule is from, also when that has begun:
  // after a rewind the rounds before it have the one that was in effect when it
  // was set. Rules before that one are not kept, so that rounds that they made
  // are done again by it.
  JobChanges changes = rule_set_;
  changes.evicted = evicted_;
  changes.reduction = reductions_.kept();
  if (job_ != nullptr && job_->finished()) {
    changes.finished = true;
    changes.failed = job_->failed();
    changes.end_reason = job_->end_reason();
  }
  facts_.epoch = job_ == nullptr ? 0 : job_->epoch();
  ++facts_.number;
  facts_.text = JobChangesText(changes);
  facts_are_new_ = true;
}

std::optional<JobFacts> CoordinatorState::TakeNewFacts() {
  if (!epoch_on_ || !std::exchange(facts_are_new_, false)) return std::nullopt;
  facts_.epoch = job_->epoch();
  return facts_;
}

// What a new process finds, and what a rewind undoes or keeps. A change that
// the configuration does not allow any more is said and left out.
void CoordinatorState::AdoptFacts(const JobFacts& facts, uint64_t version) {
  if (facts_ < facts) facts_ = facts;
  const absl::StatusOr<JobChanges> changes = ParseJobChanges(facts_.text);
  if (changes.ok()) {
    AddEvicted(changes->evicted, &evicted_);
    reductions_.SetKept(changes->reduction);
    ApplyRules(*changes, version);
  } else {
    LogWarning("what was changed between rounds is lost: ",
               changes.status().message());
  }
}

void CoordinatorState::ApplyRules(const JobChanges& changes, uint64_t version) {
  absl::StatusOr<CombineOptions> rule = options_.combine;
  absl::StatusOr<CombineOptions> next = options_.combine;
  if (changes.rule.has_value()) {
    rule = Changed(options_.combine, *changes.rule);
    next = rule;
  }
  if (changes.next_rule.has_value()) {
    next = Changed(options_.combine, *changes.next_rule);
  }
  if (!rule.ok() || !next.ok()) {
    LogWarning("the rule that was set is not taken over: ",
               rule.ok() ? next.status().message() : rule.status().message());
    return;
  }
  rule_set_ = JobChanges();
  rule_set_.rule = changes.rule;
  rule_set_.next_rule = changes.next_rule;
  rule_set_.next_round = changes.next_round;
  const bool later =
      changes.next_rule.has_value() && version < changes.next_round;
  combine_ = later ? *std::move(rule) : *next;
  next_combine_.reset();
  if (later) next_combine_ = *std::move(next);
}

// Also a job whose parameters are lost: it asks for no Seed.
void CoordinatorState::ApplyEnd() {
  const absl::StatusOr<JobChanges> changes = ParseJobChanges(facts_.text);
  if (!changes.ok()) return;
  if (!changes->finished) {
    // The last round may have ended without anybody to say so.
    job_->StayFinishedIfDue();
    if (job_->finished()) NoteChange();
    return;
  }
  // A limit that was raised lets a job go on that had finished by it.
  const bool by_limit = absl::StartsWith(changes->end_reason, "max_rounds (") ||
                        absl::StartsWith(changes->end_reason, "tau (");
  if (job_->seeded() && by_limit && job_->LimitReached().empty()) {
    LogWarning("the job had finished (", changes->end_reason,
               "); its limit was raised, so that it goes on");
    return;
  }
  job_->StayFinished(changes->end_reason, changes->failed);
  LogWarning("the job stays finished (", changes->end_reason, "); ", WayBack());
}

std::string CoordinatorState::WayBack() const {
  const std::string limit = job_->LimitReached();
  return absl::StrCat(
      limit.empty() ? "`aggctl resume` lets it go on"
                    : "to go on with it raise the limit in the configuration "
                      "and restart",
      options_.checkpoint.enabled
          ? absl::StrCat(", and another job begins with what it has by "
                         "checkpoint { restore_job: \"",
                         options_.job, "\" }")
          : "");
}

absl::StatusOr<ResumeResult> CoordinatorState::MayResume() const {
  AGG_RETURN_IF_ERROR(CheckAcceptingCalls());
  if (!job_->finished()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the job has not finished: it is at version ", job_->version()));
  }
  if (!job_->seeded() || lost_after_end()) {
    return absl::FailedPreconditionError(
        "the job has finished, and its parameters are lost");
  }
  const std::string limit = job_->LimitReached();
  if (!limit.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(limit, ", so that it would end at once: ", WayBack()));
  }
  return ResumeResult{job_->version(), job_->end_reason()};
}

absl::StatusOr<ResumeResult> CoordinatorState::Resume() {
  AGG_ASSIGN_OR_RETURN(ResumeResult resumed, MayResume());
  const absl::StatusOr<JobChanges> before = ParseJobChanges(facts_.text);
  JobChanges changes;
  if (before.ok()) changes = *before;
  changes.finished = false;
  changes.failed = false;
  changes.end_reason.clear();
  facts_.epoch = job_->epoch();
  ++facts_.number;
  facts_.text = JobChangesText(changes);
  return resumed;
}

void CoordinatorState::AdoptNextCombination() {
  // After a rewind its round may be far.
  if (!next_combine_.has_value() || job_->version() < rule_set_.next_round) {
    return;
  }
  combine_ = *std::exchange(next_combine_, std::nullopt);
}

CombinationNames CoordinatorState::CombinationOf(uint64_t round) const {
  AGG_DCHECK(job_ != nullptr);
  const bool later = next_combine_.has_value() && round >= rule_set_.next_round;
  return NamesOf(later ? *next_combine_ : combine_);
}

// Processes that are stopped in good order: the coordinator's own, and shards
// (P35).

DeferredCalls CoordinatorState::BeginDraining() {
  if (std::exchange(draining_, true)) return {};
  return Broadcast({JobEventKind::kDraining,
                    job_ == nullptr ? 0 : job_->version(),
                    "the coordinator is shutting down"});
}

void CoordinatorState::NoteDraining(uint64_t epoch, int ordinal) {
  // It may be an epoch that is still being recovered.
  if (epoch == last_epoch_) handover_.Add(epoch, ordinal);
}

Handover::Step CoordinatorState::NextHandover(absl::Time now) const {
  if (!epoch_on_ || !handover_.on(job_->epoch())) return Handover::Step::kNone;
  if (!options_.checkpoint.enabled || !job_->seeded()) {
    return Handover::Step::kLetGo;
  }
  return handover_.Next(checkpoints_, job_->id(), now);
}

WaveStep CoordinatorState::NextWave() const {
  if (!epoch_on_) return {WaveStep::Kind::kGiveUp, 0, {}};
  return job_->NextWave();
}

// What a CoordinatorState says to others: events for those who attend, answers
// for those who wait, descriptions for those who ask.

// --- Events and answers ------------------------------------------------------

DeferredCalls CoordinatorState::Broadcast(const JobEvent& event) const {
  DeferredCalls calls;
  for (const EventStreams::EventCallback& callback :
       event_streams_.AllCallbacks()) {
    calls.Add([callback, event] { callback(event); });
  }
  return calls;
}

DeferredCalls CoordinatorState::SayWhoIsWaitedFor(absl::Time now) {
  if (!epoch_on_ || draining_ || job_->finished()) return {};
  const std::string text = job_->SayWhoIsWaitedFor(now);
  if (text.empty()) return {};
  LogWarning(text);
  return Broadcast({JobEventKind::kWaiting, job_->version(), text});
}

DeferredCalls CoordinatorState::ReplyToWaiters() {
  AGG_DCHECK(job_ != nullptr);
  return waiters_.ReplyToKnown(
      [this](const OutcomeQuery& query) { return job_->Answer(query); });
}

void CoordinatorState::LogJoin(const JoinCall& call,
                               const JoinResult& result) const {
  AGG_DCHECK(job_ != nullptr && job_->members().count(call.rank) != 0);
  LogInfoOf(absl::StrCat("join of ", call.rank), "rank ", call.rank,
            " joined (", call.client, "); ", job_->members().size(), " of ",
            options_.workers, " workers are in; its first round is ",
            result.first_round);
}

// What operators have to find in the log without asking: who has gone and why,
// and the end of the job. Joins are logged where they are answered.
void CoordinatorState::NoteEffects(const JobEffects& effects) {
  const int num_left = static_cast<int>(job_->members().size());
  std::vector<EvictedSession> evicted;
  for (const Departure& departure : effects.departures) {
    ++num_departures_[static_cast<size_t>(departure.kind)];
    if (departure.kind == DepartureKind::kEvicted) {
      evicted.push_back({departure.session, departure.reason});
    }
    const std::string line = DescribeDeparture(departure, options_, num_left);
    LogLineOf(departure.kind == DepartureKind::kLeft ? LogLevel::kInfo
                                                     : LogLevel::kWarning,
              absl::StrCat(DepartureName(departure.kind), departure.rank),
              line);
  }
  if (!evicted.empty()) {
    AddEvicted(evicted, &evicted_);
    NoteChange();
  }
  for (const auto& [session, event] : effects.events) {
    if (event.kind != JobEventKind::kFinished) continue;
    NoteChange();
    const std::string line =
        absl::StrCat("the job has ", event.message, "; epoch ", job_->epoch());
    if (job_->failed()) {
      LogError(line);
    } else {
      LogInfo(line);
    }
  }
}

DeferredCalls CoordinatorState::Announce(const JobEffects& effects) {
  NoteEffects(effects);
  DeferredCalls calls;
  for (const auto& [session, event] : effects.events) {
    if (session == 0) {  // for everybody
      calls.Add(Broadcast(event));
    } else if (event_streams_.Attends(session)) {
      calls.Add([callback = event_streams_.CallbackOf(session), event = event] {
        callback(event);
      });
    }
  }
  for (const auto& [session, reason] : effects.ended) {
    event_streams_.Forget(session);
    calls.Add(waiters_.FailSession(session, reason));
    calls.Add(reductions_.FailSession(session, reason));
  }
  calls.Add(AnnounceLosses(effects));
  calls.Add(ReplyToWaiters());
  return calls;
}

DeferredCalls CoordinatorState::AnnounceLosses(
    const JobEffects& effects) const {
  DeferredCalls calls;
  const int num_left = static_cast<int>(job_->members().size());
  for (const Departure& departure : effects.departures) {
    if (departure.kind == DepartureKind::kLeft ||
        departure.kind == DepartureKind::kSuperseded) {
      continue;  // wanted, or in again
    }
    calls.Add(Broadcast({JobEventKind::kWorkerLost, job_->version(),
                         DescribeDeparture(departure, options_, num_left)}));
  }
  return calls;
}

absl::StatusOr<uint64_t> CoordinatorState::Renew(uint64_t epoch,
                                                 uint64_t session,
                                                 absl::string_view transports,
                                                 int num_shards,
                                                 absl::Time now) {
  AGG_RETURN_IF_ERROR(CheckAcceptingCalls(epoch));
  AGG_ASSIGN_OR_RETURN(WorkerTransports said,
                       ParseTransports(transports, num_shards));
  AGG_RETURN_IF_ERROR(job_->Renew(session, now));
  if (!transports.empty()) {
    (*job_->Find(session))->transports = std::move(said);
  }
  return job_->version();
}

// --- Questions ---------------------------------------------------------------

absl::StatusOr<JoinResult> CoordinatorState::Observe() const {
  AGG_RETURN_IF_ERROR(CheckAcceptingCalls());
  if (!job_->manifest().has_value()) {
    return absl::FailedPreconditionError(
        "no worker has joined yet, so the job has no manifest");
  }
  JoinResult result;
  result.epoch = job_->epoch();
  result.version = job_->version();
  result.made = job_->id().made;
  result.seeded = job_->seeded();
  result.finished = job_->finished();
  result.manifest = *job_->manifest();
  Complete(job_->version(), &result);
  return result;
}

void CoordinatorState::Complete(uint64_t round, JoinResult* result) const {
  result->combination = CombinationOf(round);
  result->shard_lives = shard_lives_;
  result->local_sockets = local_sockets_;
  result->region_sockets = region_sockets_;
}

JobPhase CoordinatorState::Phase() const {
  if (draining_) return JobPhase::kDraining;
  if (!epoch_on_) {
    return job_ == nullptr ? JobPhase::kWaitingForShards : JobPhase::kShardLost;
  }
  if (job_->finished()) return JobPhase::kFinished;
  if (!job_->seeded()) return JobPhase::kUnseeded;
  return in_round() ? JobPhase::kClosing : JobPhase::kOpen;
}

// What somebody who looks at the job should know first.
std::string CoordinatorState::Message() const {
  if (!epoch_on_) return std::string(no_epoch_.message());
  if (!lost_after_end_.empty()) return lost_after_end_;
  if (job_->failed()) return job_->end_reason();
  if (job_->finished())
    return absl::StrCat("finished: ", job_->end_reason(), "; ", WayBack());
  if (!job_->seeded()) return checkpoints_.Status(absl::Time()).restore;
  if (job_->floor().below()) {
    return absl::StrCat("the job ", job_->floor().Text());
  }
  const std::string skipped = job_->skipped().Text();
  const std::string replicas = job_->replicas().Text();
  return skipped.empty() || replicas.empty()
             ? absl::StrCat(skipped, replicas)
             : absl::StrCat(skipped, "; ", replicas);
}

JobStatus CoordinatorState::Status(absl::Time now) const {
  JobStatus status;
  status.phase = Phase();
  status.message = Message();
  status.shard_errors = shard_errors_;
  status.recovering = recovering_;
  status.rewinds = num_rewinds_;
  status.checkpoint = checkpoints_.Status(now);
  status.combination = NamesOf(combine_);
  status.next_combination = NamesOf(next_combine_.value_or(combine_));
  for (int kind = 0; kind < kNumDepartureKinds; ++kind) {
    status.ended_workers.push_back(
        {DepartureName(static_cast<DepartureKind>(kind)),
         num_departures_[static_cast<size_t>(kind)]});
  }
  if (job_ == nullptr) return status;
  status.epoch = job_->epoch();
  status.version = job_->version();
  status.round = job_->version();
  status.history = job_->history();
  status.replicated = options_.replicated && epoch_on_ && job_->seeded();
  status.seeded = job_->seeded();
  // Nobody is waited for once the epoch, or the job, is over.
  const bool over = !epoch_on_ || job_->finished();
  if (!over) status.missing_ranks = job_->MissingRanks();
  status.round_timeout = job_->round_timeout();
  status.min_workers = options_.min_workers;
  status.consecutive_skipped_rounds = job_->skipped().length();
  status.failed = job_->failed();
  status.not_finite_rounds = job_->skipped().not_finite_length();
  status.differing_ranks = job_->replicas().differing();
  if (!over && job_->floor().below()) {
    status.below_floor_for = now - job_->floor().below_since();
    status.below_floor = true;
  }
  for (const auto& [rank, member] : job_->members()) {
    status.workers.push_back(StateOf(member, over, now));
  }
  return status;
}

WorkerState CoordinatorState::StateOf(const Member& member, bool over,
                                      absl::Time now) const {
  WorkerState worker;
  worker.rank = member.rank;
  worker.client = member.client;
  worker.committed = job_->contributions().count(member.rank) != 0;
  worker.attending = event_streams_.Attends(member.session);
  worker.lease_remaining = member.lease_end - now;
  worker.transports = member.transports;
  const RankArrivals arrivals = arrivals_.Of(member.rank);
  worker.late_rows = arrivals.late_rows;
  worker.last_rows = arrivals.last_rows;
  worker.lateness = arrivals.lateness;
  // Only a member of the open round can hold it up, and only once somebody has
  // committed.
  if (!over && !worker.committed && member.first_round <= job_->version() &&
      job_->waiting_since() < now) {
    worker.waited_for = now - job_->waiting_since();
  }
  return worker;
}

}  // namespace agg
