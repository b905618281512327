// Epochs and rounds, as changes of plain state. Commits are in
// coordinator_commits.cc, the rule and other facts in coordinator_rules.cc,
// stops in coordinator_draining.cc.
#include "server/coordinator/coordinator_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/coordinator/replica_groups.h"
#include "server/round/orderly_stop.h"

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
      close_options_{options.workers,       options.min_workers,
                     options.start_timeout, options.round_timeout,
                     options.floor_policy,  options.floor_timeout,
                     options.quorum},
      floor_(close_options_),
      skipped_(options.max_skipped_rounds),
      replicas_(options.fail_on_divergence),
      arrivals_(options.round_timeout_mad),
      no_epoch_(absl::UnavailableError("waiting for all shards")),
      checkpoints_(options.checkpoint),
      combine_(options.combine),
      waiting_report_(options.start_warning, options.straggler_warning) {}

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
  recovering_.clear();
  told_.clear();
  lost_after_end_.clear();
  if (!start.has_value()) {
    job_ = std::make_unique<JobState>(options_, epoch, now);
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
    job_ = std::make_unique<JobState>(options_, epoch, now, *std::move(start));
    if (restored.has_value() || !checkpoints_.began()) {
      checkpoints_.Begin(id, restored, now, borrowed);
    }
  }
  job_->KeepEvicted(evicted_);
  ApplyEnd();
  arrivals_.BeginEpoch(job_->version());
  awaited_.Begin(0);
  offers_.clear();
  awaited_began_ = false;
  floor_ = FloorWatch(close_options_);
  skipped_ = SkippedRun(options_.max_skipped_rounds);
  replicas_ = ReplicaWatch(options_.fail_on_divergence);
  epoch_on_ = true;
  no_epoch_ = absl::OkStatus();
  waiting_report_ =
      WaitingReport(options_.start_warning, options_.straggler_warning);
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
  calls.Add(Broadcast({JobEventKind::kShardLost, job_->version(),
                       std::string(no_epoch_.message())}));
  // Streams of the former epoch may still be open; their ends mean nothing.
  attendance_.ForgetAll();
  awaited_.Begin(0);
  return calls;
}

// --- Rounds ------------------------------------------------------------------

CloseSnapshot CoordinatorState::Snapshot() const {
  CloseSnapshot snapshot = job_->close_snapshot();
  snapshot.below_floor_since = floor_.below_since();
  snapshot.usual_timeout = arrivals_.Timeout();
  return snapshot;
}

bool CoordinatorState::FailJobIfDue(absl::Time now) {
  if (!CheckAcceptingCalls().ok() || !job_->seeded() || job_->finished()) {
    return false;
  }
  floor_.Note(job_->close_snapshot(), now);
  if (!DecideClose(close_options_, Snapshot(), now).fail) return false;
  job_->Fail(floor_.FailureText());
  return true;
}

std::optional<ClosingRound> CoordinatorState::CloseRoundIfDue(absl::Time now) {
  if (!CheckAcceptingCalls().ok() || !job_->seeded() || job_->finished() ||
      NextHandover(now) != Handover::Step::kNone) {
    return std::nullopt;
  }
  const CloseSnapshot snapshot = Snapshot();
  const CloseDecision decision = DecideClose(close_options_, snapshot, now);
  if (decision.start) job_->Start(now);
  if (!decision.close) return std::nullopt;
  job_->BeginClosing();
  in_round_ = true;
  return ClosingRound{job_->epoch(),
                      job_->version(),
                      job_->contributions(),
                      now - snapshot.opened_at,
                      combine_,
                      TakeOffers()};
}

bool CoordinatorState::FinishRound(const ClosingRound& round, absl::Time now,
                                   RoundReport* report) {
  GiveUpRound();
  // All shards have published it (P17), though the epoch may have ended since:
  // then the next one begins with this version, and job_ has to know of it.
  if (job_->epoch() != round.epoch) return false;
  report->says_equal_rows = equal_rows_.Note(*report);
  CompleteReport(round, now, report);
  NoteArrivals(round);
  GiveUpAwaited(round.round, now);
  report->history = job_->history();
  RoundResult outcome = OutcomeOf(*report);
  const uint64_t num_skipped = skipped_.length();
  skipped_.Note(*report);
  replicas_.Note(report->round, GroupReplicas(*report));
  const std::string failure = skipped_.FailureText();
  job_->FinishRound(outcome, now,
                    failure.empty() ? replicas_.FailureText() : failure);
  AdoptNextCombination();
  outcome.finished = job_->finished();  // max_rounds may end the job, too
  recent_rounds_.Add(*report, outcome, now);
  const std::string line = remark_lines_.Next(*report, skipped_, now);
  if (!line.empty()) LogWarning("round ", round.round, ": ", line);
  if (report->applied && num_skipped > 1) {
    LogInfo("round ", round.round, " was applied, after ", num_skipped,
            " that were skipped");
  }
  return true;
}

absl::Time CoordinatorState::NextWake(absl::Time now) const {
  if (!epoch_on_) return draining_ ? absl::InfiniteFuture() : next_attach_at_;
  // They came while those before them were sent.
  if (facts_are_new_) return absl::InfinitePast();
  absl::Time wake = absl::InfiniteFuture();
  for (const auto& [rank, member] : job_->members()) {
    wake = std::min(wake, member.lease_end);
  }
  if (job_->seeded()) {
    wake = std::min(wake, checkpoints_.NextDue(job_->id(), job_->finished()));
  }
  if (open_waves_.has_value()) {
    if (NextWave().kind != WaveStep::Kind::kWait) return absl::InfinitePast();
    return std::min(wake, waiting_report_.next_at());
  }
  const Handover::Step handover = NextHandover(now);
  if (handover == Handover::Step::kWait) {
    return std::min(wake, handover_.deadline());
  }
  if (handover != Handover::Step::kNone) return absl::InfinitePast();
  if (draining_ || job_->finished()) return wake;
  if (job_->seed_committed().has_value()) return absl::InfinitePast();
  wake = std::min(wake, waiting_report_.next_at());
  if (!job_->seeded()) return wake;
  const CloseDecision decision = DecideClose(close_options_, Snapshot(), now);
  if (decision.close) return absl::InfinitePast();
  return std::min(wake, decision.ask_again_at);
}

}  // namespace agg
