// Everything that the coordinator keeps under its lock: whether calls are
// taken, the epoch that is on, who attends and who waits, the rule, the last
// rounds. It decides and remembers, over all epochs of the process; it starts
// no thread, calls no shard and reads no clock, so that Coordinator needs one
// annotation for all of it and tests need no threads.
#ifndef AGG_SERVER_COORDINATOR_COORDINATOR_STATE_H_
#define AGG_SERVER_COORDINATOR_COORDINATOR_STATE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/job_phase.h"
#include "server/combine/options.h"
#include "server/coordinator/checkpoint_schedule.h"
#include "server/coordinator/close_policy.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/job_record.h"
#include "server/coordinator/job_state.h"
#include "server/coordinator/outcome_waiters.h"
#include "server/coordinator/round_reporter.h"
#include "server/coordinator/round_watches.h"
#include "server/coordinator/small_reductions.h"
#include "server/round/combination_names.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"
#include "server/round/round_report.h"
#include "server/round/shard_peer.h"

namespace agg {

// An epoch's end that the shards have not heard of yet.
struct EpochLoss {
  uint64_t epoch = 0;
  absl::Status reason;
};

// Thread-compatible.
class CoordinatorState {
 public:
  explicit CoordinatorState(const CoordinatorOptions& options);

  // --- Calls. OK while an epoch is on; UNAVAILABLE otherwise, or when
  // draining; ABORTED if the caller knows another epoch (nothing: any).
  absl::Status CheckAcceptingCalls(std::optional<uint64_t> epoch = {}) const;
  bool draining() const { return draining_; }
  // Takes no call and closes no round any more. Idempotent.
  DeferredCalls BeginDraining();

  // Renews a session's lease, in a job of that many shards: the version that is
  // published. `transports`: as LeaseRenewal has it; "" leaves what was said
  // before. Errors of CheckAcceptingCalls, ParseTransports, JobState::Renew.
  absl::StatusOr<uint64_t> Renew(uint64_t epoch, uint64_t session,
                                 absl::string_view transports, int num_shards,
                                 absl::Time now);

  // --- Epochs. The protocol's state in the epoch that is on, or was on last;
  // null until all shards were attached for the first time.
  JobState* job() { return job_.get(); }
  const JobState* job() const { return job_.get(); }
  // Returns the job while that epoch is on, else null.
  JobState* JobOf(uint64_t epoch) {
    return epoch_on_ && job_->epoch() == epoch ? job_.get() : nullptr;
  }
  bool epoch_on() const { return epoch_on_; }
  bool finished() const { return job_ != nullptr && job_->finished(); }
  // The number of the next epoch if it is time to attach the shards to it
  // (P14); then it ends in AttachFailed or BeginEpoch.
  std::optional<uint64_t> NextEpochIfDue(absl::Time now);
  // Whether this coordinator waits because another one has the job: `other`
  // names it, "" is none.
  bool StandBy(const std::string& other, absl::Time now);
  void AttachFailed(const absl::Status& status);
  // The shards are attached, and the job cannot go on before a person has done
  // something: `text` says what. It is logged when it changes.
  void AwaitPerson(const std::string& text, absl::Time now);
  // Makes the epoch that NextEpochIfDue has given higher than `promise`, which
  // some shard has given: whatever the clocks say (P20). Returns it.
  uint64_t RaiseEpoch(uint64_t epoch, uint64_t promise);
  // How the attempt went for one shard, for Status().
  void NoteAttach(int ordinal, const absl::Status& status);
  // A recovery is under way; `what` is waited for, for people.
  void NoteRecovery(const std::string& what);
  // An unseeded job, or one that goes on from `start`. False, and nothing
  // happens, if `epoch` was lost while shards were being attached.
  bool BeginEpoch(uint64_t epoch, std::optional<JobStart> start,
                  absl::Time now);
  // The shards' processes: random bits of each, and its Unix sockets (P38,
  // P39).
  void SetShardProcesses(std::vector<uint64_t> lives,
                         std::vector<std::string> sockets,
                         std::vector<std::string> region_sockets) {
    shard_lives_ = std::move(lives);
    local_sockets_ = std::move(sockets);
    region_sockets_ = std::move(region_sockets);
  }
  // The job has finished, a shard is gone, and no epoch follows.
  bool lost_after_end() const { return !lost_after_end_.empty(); }
  // Fills in what an answer to Join or Observe says of the shards, and of the
  // combination of `round`. REQUIRES: job() != nullptr.
  void Complete(uint64_t round, JoinResult* result) const;

  // --- What changes between two rounds (P37). The newest facts of all, for a
  // job that goes on at `version`: the rule becomes what they say.
  void AdoptFacts(const JobFacts& facts, uint64_t version);
  // Writes down what has changed, for all shards to keep.
  void NoteChange();
  // Returns the facts that shards do not know yet, once.
  std::optional<JobFacts> TakeNewFacts();
  // The job goes on though it has finished: from the next epoch on, which the
  // caller brings about. FAILED_PRECONDITION: it has not finished, or would end
  // at once. UNAVAILABLE: no epoch is on.
  absl::StatusOr<ResumeResult> Resume();
  // Returns what Resume would, and changes nothing.
  absl::StatusOr<ResumeResult> MayResume() const;
  // Makes shards hear the facts again: they did not get them, or somebody waits
  // for their word.
  void RepeatFacts() { facts_are_new_ = true; }
  const JobFacts& facts() const { return facts_; }
  // Sessions that operators have ended, in any epoch.
  const std::vector<EvictedSession>& evicted() const { return evicted_; }

  // Why parameters are not finite; "": they are, as far as rounds say.
  std::string NotFiniteText() const {
    return job_ == nullptr ? "" : job_->skipped().NotFiniteText();
  }

  CheckpointSchedule* checkpoints() { return &checkpoints_; }
  const CheckpointSchedule& checkpoints() const { return checkpoints_; }

  // --- Shards that are being stopped (P35). Shard `ordinal` waits in `epoch`
  // to be let go: from here on no round of that epoch is closed.
  void NoteDraining(uint64_t epoch, int ordinal);
  // What the loop has to do for them.
  Handover::Step NextHandover(absl::Time now) const;
  Handover* handover() { return &handover_; }

  // A shard is gone: the epoch is over, unless the job has finished. Nothing
  // happens for an epoch that is not the latest.
  DeferredCalls LoseEpoch(uint64_t epoch, const absl::Status& reason,
                          absl::Time now);
  // No shard is lost: a person wants another epoch at once, also of a finished
  // job, and also in the place of one that is beginning.
  DeferredCalls EndEpoch(const absl::Status& reason, absl::Time now);
  bool has_loss() const { return loss_.has_value(); }
  std::optional<EpochLoss> TakeLoss() { return std::exchange(loss_, {}); }

  // --- Small reductions beside the model (P51). As SmallReductions::Add;
  // errors also of CheckAcceptingCalls, SessionTable::Rank and
  // SmallReductions::Check.
  DeferredCalls Reduce(uint64_t epoch, ReduceCall call, absl::Time now,
                       SmallReductions::Done done, uint64_t* number);
  // Makes the open one if nobody is waited for: then it is in the facts.
  void MakeReduction();
  DeferredCalls SayWhoReducesNot(absl::Time now);
  SmallReductions* reductions() { return &reductions_; }

  // --- Rounds. Closes the open round if the close policy says so. Then one of
  // two follows: FinishRound with the engine's report, which it completes and
  // which has been published, also if the epoch has ended since, or
  // JobState::GiveUpRound.
  // Whether the job has just failed (P2): then Announce says so.
  bool FailJobIfDue(absl::Time now);
  std::optional<ClosingRound> CloseRoundIfDue(absl::Time now);
  void FinishRound(const ClosingRound& round, absl::Time now,
                   RoundReport* report);
  // JobState::NextWave, or kGiveUp when the round's epoch is over.
  WaveStep NextWave() const;
  bool in_round() const { return job_ != nullptr && job_->closing(); }
  // Says, to the log and to all workers, who has been waited for too long, if
  // that is to be said now.
  DeferredCalls SayWhoIsWaitedFor(absl::Time now);
  // When something is due next if nothing changes before.
  absl::Time NextWake(absl::Time now) const;

  // --- The rule. Does what Coordinator::SetRule says.
  absl::StatusOr<RuleChangeResult> SetRule(const RuleChange& change,
                                           const CombinationCheck& check);
  // Names the combination of the open round or of a later one.
  // REQUIRES: job() != nullptr.
  CombinationNames CombinationOf(uint64_t round) const;
  // Options with which the open round is combined.
  const CombineOptions& combine() const { return combine_; }

  // --- Whom to tell.
  EventStreams* event_streams() { return &event_streams_; }
  OutcomeWaiters* waiters() { return &waiters_; }
  DeferredCalls Broadcast(const JobEvent& event) const;
  // Events and ends of sessions, and whatever answers they bring about. What
  // shards have to hear (effects.changes) is the caller's part.
  DeferredCalls Announce(const JobEffects& effects);
  // REQUIRES: the worker is in.
  void LogJoin(const JoinCall& call, const JoinResult& result) const;
  // REQUIRES: job() != nullptr.
  DeferredCalls ReplyToWaiters();

  // --- Questions.
  absl::StatusOr<JoinResult> Observe() const;
  JobStatus Status(absl::Time now) const;
  const RecentRounds& recent_rounds() const { return recent_rounds_; }

 private:
  // Whether a rule may be set now.
  absl::Status CheckSetRule() const;
  // What a change leads to, if the job can be combined so.
  absl::StatusOr<CombineOptions> Changed(const CombineOptions& before,
                                         const RuleChange& change) const;
  // Applies the combination that was set for the next round.
  void AdoptNextCombination();
  // Writes departures and the end to the log, and counts departures.
  void NoteEffects(const JobEffects& effects);
  // Tells those who are in about workers that are gone without having left.
  DeferredCalls AnnounceLosses(const JobEffects& effects) const;
  JobPhase Phase() const;
  void LogEpoch(uint64_t epoch, const std::optional<JobStart>& start) const;
  // Finishes the job if the facts say that it has finished.
  void ApplyEnd();
  void ApplyRules(const JobChanges& changes, uint64_t version);
  DeferredCalls EndLastEpoch(const absl::Status& reason, absl::Time now);
  std::string Message() const;
  // How a finished job may go on.
  std::string WayBack() const;
  SmallReductions::Job ReductionJob() const;
  WorkerState StateOf(const Member& member, bool over, absl::Time now) const;

  const CoordinatorOptions options_;
  std::unique_ptr<JobState> job_;
  EqualRowsRun equal_rows_;
  ArrivalTimes arrivals_;
  bool epoch_on_ = false;
  absl::Status no_epoch_;       // why none is on
  std::string lost_after_end_;  // a shard was lost after the job had finished
  std::vector<std::string> shard_errors_;  // as JobStatus has it
  std::vector<uint64_t> shard_lives_;
  std::vector<std::string> local_sockets_;  // by ordinal, as the lives
  std::vector<std::string> region_sockets_;
  std::string lost_because_;  // the last epoch that was on
  std::string recovering_;    // "": no recovery is under way
  std::string told_;          // what a person was told last, and when
  absl::Time told_at_;
  uint64_t num_rewinds_ = 0;
  JobFacts facts_;
  bool facts_are_new_ = false;
  // The rule and next_rule in it are as an operator has set them last; nothing:
  // as configured.
  JobChanges rule_set_;
  std::vector<EvictedSession> evicted_;  // oldest first
  CheckpointSchedule checkpoints_;
  Handover handover_;
  std::optional<EpochLoss> loss_;
  uint64_t last_epoch_ = 0;
  absl::Time next_attach_at_ = absl::InfinitePast();
  std::optional<absl::Time> standby_logged_at_;  // nothing: no standby
  EventStreams event_streams_;
  OutcomeWaiters waiters_;
  SmallReductions reductions_;
  CombineOptions combine_;                      // of the open round
  std::optional<CombineOptions> next_combine_;  // from the next round on
  RecentRounds recent_rounds_;
  std::array<uint64_t, kNumDepartureKinds> num_departures_ = {};
  bool draining_ = false;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_COORDINATOR_STATE_H_
