// The job's single decision maker: members, leases, commits, rounds. Runs on
// shard 0 and drives all shards through ShardPeer.
//
// The source has a section for each task: calls from any thread; the loop on
// its own thread, with rounds, ends of sessions, recoveries and the beginnings
// of epochs; restores (which checkpoint, and an operator's word on it); joins
// and checkpoints, which run on threads of their own and then on the loop's.
// What it knows is in CoordinatorState.
#ifndef AGG_SERVER_COORDINATOR_COORDINATOR_H_
#define AGG_SERVER_COORDINATOR_COORDINATOR_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/shard_plan.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/checkpoint/checkpoint_state.h"
#include "server/coordinator/checkpoint_task.h"
#include "server/coordinator/coordinator_state.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/job_record.h"
#include "server/coordinator/job_state.h"
#include "server/coordinator/join_queue.h"
#include "server/coordinator/outcome_waiters.h"
#include "server/coordinator/peer_group.h"
#include "server/coordinator/recovery_plan.h"
#include "server/coordinator/round_engine.h"
#include "server/coordinator/round_reporter.h"
#include "server/coordinator/small_reductions.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"
#include "server/round/round_report.h"
#include "server/round/shard_peer.h"

namespace agg {

// Thread-safe. One thread ("the loop", or a test that calls RunOnce) changes
// membership and runs rounds, one thing after another; commits, renewals and
// questions come from any thread, under mutex_. No lock is held when a peer or
// a callback is called. Each `done` is called exactly once, by a thread of the
// coordinator's or by the caller's, but for calls that CancelWait ends.
class Coordinator {
 public:
  using OutcomeCallback = OutcomeWaiters::Callback;
  // Whether the caller of a queued call no longer waits for its answer.
  using GoneCallback = std::function<bool()>;
  using JoinCallback = std::function<void(absl::StatusOr<JoinResult>)>;
  using ReportCallback = std::function<void(const RoundReport&)>;
  using EventCallback = EventStreams::EventCallback;
  // Text that names another coordinator of the job, or "" if there is none.
  using FindOther = std::function<std::string()>;

  // `peers` by ordinal; they and `clock` outlive the coordinator. `on_report`
  // is called after each round, in their order, on a thread of its own (without
  // Start: on the loop). `find_other` (null: there is never
  // one) is asked on the loop before shards are attached; it may block.
  // `order`: of PeerGroup.
  Coordinator(const CoordinatorOptions& options, std::vector<ShardPeer*> peers,
              const Clock* clock, ReportCallback on_report,
              FindOther find_other = nullptr,
              const PeerGroup::Order& order = nullptr);
  ~Coordinator();

  // Starts the threads that attach the shards and run rounds, reserve memory
  // for Joins, and look at deadlines. Tests call RunOnce and CheckDeadlines
  // instead, with their own clock.
  void Start();
  // Does what is due now (a queued call, attaching, leases, the seed, a round);
  // whether it did anything. Without Start it serves Joins, too.
  bool RunOnce();
  // Ends what has taken too long, though the loop may be in it: reservations,
  // and the epoch of a phase that a shard does not answer.
  void CheckDeadlines();
  // Whether another life of the coordinator answers at this one's address: then
  // this one ends (P21). Asks `find_other`, which may block.
  void CheckAddress();
  // Sets what hears of each checkpoint that the job goes on from, on the loop;
  // it must not block. Before Start.
  void SetOnRestored(std::function<void(const VersionId&)> callback) {
    on_restored_ = std::move(callback);
  }
  // Sets what hears of each worker that is lost (IsLoss), and of what happened
  // in words, on the loop or the thread of a call; it must not block. Before
  // Start.
  void SetOnLost(
      std::function<void(const Departure&, const std::string&)> callback) {
    on_lost_ = std::move(callback);
  }
  // Sets what is called at most once, from any thread, by a coordinator that
  // has held an epoch and is replaced. Before Start.
  void SetOnSuperseded(std::function<void(const absl::Status&)> callback) {
    on_superseded_ = std::move(callback);
  }

  // Leaves and Evicts that wait for the loop, and Joins, at most.
  static constexpr size_t kMaxQueuedCalls = JoinQueue::kMaxWaiting;

  // --- Calls of workers. UNAVAILABLE while no epoch is on, when draining, or
  // when kMaxQueuedCalls wait; ABORTED for another epoch; and as JobState says.
  //
  // A Join gets the shards' error if one of them cannot reserve its memory, and
  // UNAVAILABLE if that takes longer than JoinQueue::kTimeout; the job goes on.
  // One whose caller has `gone` (null: it stays) makes no member: CANCELLED.
  // One that cannot succeed as things are is refused at once.
  void Join(JoinCall call, JoinCallback done, GoneCallback gone = nullptr);
  // An Attend stream of a session is open; events go to `on_event`, which
  // must not block or call back. Returns the stream's number, for Detach.
  absl::StatusOr<uint64_t> Attend(uint64_t epoch, uint64_t session,
                                  EventCallback on_event);
  // Renews the lease; the version that is published so far. `transports`: as
  // LeaseRenewal has it; INVALID_ARGUMENT as ParseTransports.
  absl::StatusOr<uint64_t> Renew(uint64_t epoch, uint64_t session,
                                 absl::string_view transports = "");
  // The stream broke: unless the session has another one, its lease ends after
  // reconnect_grace at the latest.
  void Detach(uint64_t stream);
  // Commit and WaitRound return the number of the call that now waits, for
  // CancelWait, or 0: `done` has been called. RESOURCE_EXHAUSTED when too many
  // wait (OutcomeWaiters); a row whose Commit gets that is committed.
  uint64_t Commit(CommitCall call, OutcomeCallback done);
  // session 0: `included` is false. epoch 0: any.
  uint64_t WaitRound(uint64_t epoch, const OutcomeQuery& query,
                     OutcomeCallback done);
  // The caller of a waiting call has gone: its `done` is not called. What it
  // has committed stands.
  void CancelWait(uint64_t number);
  // Answered when all shards know it (P50), as Evict and SetRuleEverywhere are;
  // UNAVAILABLE: it is done here, and they have not confirmed it in time.
  void Leave(uint64_t epoch, uint64_t session,
             std::function<void(absl::Status)> done);

  // Answers with the sums over all workers (P51), when all shards keep them, or
  // after SmallReductions::kAskAgain with who is waited for. Errors as
  // CoordinatorState::Reduce. Returns the number of the call that now waits,
  // for CancelReduce, or 0.
  uint64_t Reduce(uint64_t epoch, ReduceCall call, SmallReductions::Done done);
  // Withdraws a call whose caller has gone: its `done` is not called.
  void CancelReduce(uint64_t number);

  // --- Calls of operators. A rule from the next round to open on, for as long
  // as the job goes on (P37). INVALID_ARGUMENT, FAILED_PRECONDITION
  // (finished), UNAVAILABLE (no epoch is on, or draining), or what `check` (may
  // be null) says; it is called under the lock. Shards do not have it yet when
  // it returns.
  absl::StatusOr<RuleChangeResult> SetRule(const RuleChange& change,
                                           const CombinationCheck& check);
  // Does what SetRule does, and answers when all shards have the rule, so that
  // a process that is lost does not take it along. UNAVAILABLE: the coordinator
  // stops before, or they have not confirmed it in time (KeptAnswers).
  using RuleCallback = std::function<void(absl::StatusOr<RuleChangeResult>)>;
  void SetRuleEverywhere(const RuleChange& change, RuleCallback done);
  // Ends the rank's session for good, ABORTED "evicted: reason"; what it has
  // committed stands. Answered when all shards keep it, as above. NOT_FOUND;
  // INVALID_ARGUMENT for a reason over kMaxTextBytes.
  void Evict(int32_t rank, const std::string& reason,
             std::function<void(absl::StatusOr<Eviction>)> done);
  // Takes a checkpoint as soon as no round is in execution; answered when it is
  // complete on all shards, or with why it is not. FAILED_PRECONDITION: none
  // is configured, or nothing is published.
  void TakeCheckpoint(
      std::function<void(absl::StatusOr<TakenCheckpoint>)> done);
  // Says which checkpoints there are, or has the job go on from one of them, or
  // begin anew, which it would not by itself (P29). That may end the epoch.
  // Answered when it is done, and a checkpoint of it complete.
  // FAILED_PRECONDITION (none configured; it cannot be loaded, with what is
  // missing where; to begin anew: a job that has parameters), NOT_FOUND (nobody
  // sees such a one), UNAVAILABLE (draining, or not all shards were there
  // within kOrderTimeout: then it is not done later either). ParseRestore: what
  // RestoreRequest of proto/admin.proto has; INVALID_ARGUMENT.
  static constexpr absl::Duration kOrderTimeout = KeptAnswers::kTimeout;
  static absl::StatusOr<RestoreCall> ParseRestore(const std::string& text);
  void Restore(const RestoreCall& call,
               std::function<void(absl::StatusOr<RestoreResult>)> done);
  // Lets a finished job go on, through a new epoch. Answered when all shards
  // know it, and their checkpoints. Errors: CoordinatorState::Resume's, and
  // UNAVAILABLE as Restore has it.
  void Resume(std::function<void(absl::StatusOr<ResumeResult>)> done);
  // Takes no more calls and tells workers so, waits for a round in execution
  // until `deadline` (real time), fails everything that waits with UNAVAILABLE.
  // Idempotent.
  void Drain(absl::Time deadline);

  // Returns the identity that a session belongs to, alive or ended (P45).
  // Errors: as the calls of sessions, for the epoch (nothing: any); NOT_FOUND.
  absl::StatusOr<std::string> OwnerOf(std::optional<uint64_t> epoch,
                                      uint64_t session) const;
  // --- Questions. The job's description; FAILED_PRECONDITION before there is
  // a manifest.
  absl::StatusOr<JoinResult> Observe() const;
  JobStatus Status() const;
  std::optional<RoundResult> LastOutcome() const;
  std::vector<RoundRecord> Rounds() const;          // see RecentRounds
  std::vector<double> TensorOrthogonality() const;  // see RecentRounds
  bool finished() const;

 private:
  // Wakes the loop if something is due. To be called when a commit or a report
  // has come: most close no round, and the loop sleeps on.
  void WakeLoopIfDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Has the loop run `operation`, or says why calls are not taken.
  absl::Status Enqueue(std::optional<uint64_t> epoch,
                       std::function<void()> operation);
  // A shard is lost. From any thread.
  void LoseEpoch(uint64_t epoch, const absl::Status& reason);
  // Somebody stops the shard, which waits to be let go. From any thread.
  void NoteDraining(uint64_t epoch, int ordinal);
  // Rows are complete on a shard, whose commits may have come. From any thread.
  void NoteComplete(uint64_t epoch, int ordinal,
                    const std::vector<CompleteRow>& rows);
  // Another life of the coordinator answers at this one's address.
  void Supersede(const std::string& other);

  // --- The loop. Those that end in IfDue return whether they did anything.
  void Loop();
  bool RunOperation();
  void PropagateLoss();
  void SayWhoIsWaitedFor();
  bool AttachIfDue();
  // Whether another coordinator has the job, so that this one is a standby.
  bool StandsBy();
  // The number of the next epoch: `epoch`, or above all promises.
  uint64_t AbovePromises(uint64_t epoch);
  absl::Status AttachAll(uint64_t epoch,
                         std::vector<ShardInventory>* inventories);
  void BeginEpoch(uint64_t epoch,
                  const std::vector<ShardInventory>& inventories,
                  std::optional<JobStart> start);
  // Brings all copies to one version, and *start to what goes on there; nothing
  // if the job is unseeded.
  absl::Status Recover(uint64_t epoch,
                       const std::vector<ShardInventory>& inventories,
                       std::optional<JobStart>* start);
  // --- Its steps, in their order.
  // What an operator has asked for, until it is
  // carried out.
  struct Order {
    enum class Kind : uint8_t { kCheckpoint, kBeginAnew, kResume };
    Kind kind = Kind::kCheckpoint;
    RestoreCall restore;
    ResumeResult resume;
    // Called when the order is done, with what was done, in words.
    std::function<void(absl::StatusOr<std::string>)> done;
    absl::Time until;          // dropped then, unless it is taken
    bool taken = false;        // a recovery decides or goes by it
    bool carried_out = false;  // an epoch has begun with it
  };
  // Takes the order that waits. Returns it if it is about checkpoints;
  // *carried_out: an epoch has begun with it, and no checkpoint has it yet.
  std::optional<RestoreCall> TakeOrder(bool* carried_out);
  // A recovery waits for a person before it has done anything by the order.
  void PutOrderBack();
  bool Resumes() const;  // a finished job is to go on
  absl::Status GiveOrder(Order order, const absl::Status& why);
  void EndOrder(const absl::StatusOr<std::string>& result);
  // An epoch has begun with it: what remains is that a checkpoint has it.
  void CompleteOrder(const std::string& text);
  absl::Status SealFacts();
  // See notes what the shards see; Choose and ChooseOf find what may be loaded
  // of that.
  void See(const std::vector<ShardInventory>& inventories);
  CheckpointChoice Choose(const std::optional<RestoreCall>& order);
  CheckpointChoice ChooseOf(std::vector<CheckpointListing> listings);
  bool HasSaved() const;
  RestoreResult Found() const;
  RecoveryDecision Decide(uint64_t epoch,
                          const std::vector<ShardInventory>& inventories);
  void NoteBeginning(uint64_t epoch, const RecoveryDecision& decision);
  // Has the folders say that the job begins anew by an operator's word.
  absl::Status KeepBeginning(uint64_t epoch);
  absl::Status AwaitPerson(const std::string& what);
  std::string Remedies() const;
  void Note(const std::string& what);
  // Adopts the facts that the recovery has found for a job that is not seeded.
  void TakeUnseededFacts(const RecoveryDecision& decision);
  absl::StatusOr<std::string> ReadCheckpoint(uint64_t epoch,
                                             const VersionId& id,
                                             CheckpointManifest* manifest);
  // The facts that hold, in all plans. REQUIRES: it loads the checkpoint.
  absl::Status TakeFacts(uint64_t epoch, const CheckpointManifest& checkpoint,
                         RecoveryDecision* decision) const;
  // An error of loading: the job waits for a person, unless a shard was lost.
  absl::Status Refused(const VersionId& id, const absl::Status& status);
  absl::Status GiveManifest(uint64_t epoch,
                            const std::vector<ShardInventory>& inventories,
                            const CheckpointManifest& checkpoint,
                            JobStart* start);
  absl::Status RunRecover(uint64_t epoch, const RecoveryDecision& decision,
                          const std::string& checkpoint);
  // All shards' parts are whole. Errors name shard and file.
  absl::Status Verify(uint64_t epoch, const std::string& checkpoint);
  absl::Status Fetch(uint64_t epoch, const VersionId& target);
  absl::Status FillStart(uint64_t epoch,
                         const std::vector<ShardInventory>& inventories,
                         const RecoveryDecision& decision,
                         const CheckpointManifest& checkpoint, JobStart* start);
  absl::Status FillRecord(uint64_t epoch, const RecoveryDecision& decision,
                          const CheckpointManifest& checkpoint,
                          JobStart* start);
  bool GoOnFromMemory(uint64_t epoch, const VersionId& target, JobStart* start);
  absl::Status GiveSessions(uint64_t epoch, const JobStart& start);
  absl::Status Open(uint64_t epoch, const VersionId& target);
  void SealAgain(uint64_t epoch, const std::string& checkpoint);
  absl::Status RunPhases(const std::function<Phase(int)>& make_phase);

  // --- Checkpoints.
  bool CheckpointIfDue();
  absl::Status CheckFinite() const;
  // Whether one begins now; then *manifest lacks what the loop alone knows.
  bool BeginCheckpoint(uint64_t* epoch, JobRecord* record,
                       CheckpointManifest* manifest);
  void AwaitLastCheckpoint(absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the one that is under way has ended.
  bool LookAtCheckpoint();
  void EndCheckpoint(const absl::StatusOr<TakenCheckpoint>& result);
  // The body of checkpoints_thread_.
  void WatchCheckpoints();
  // Lets go of shards that are being stopped (P35).
  bool HandOverIfDue();
  // What shards have to keep between rounds (P37).
  void FactsIfDue();
  bool ExpireIfDue();
  bool SeedIfDue();
  bool FailIfDue();
  bool RoundIfDue();
  // What a round came to, or why its epoch is over.
  void EndRound(const ClosingRound& round, absl::StatusOr<RoundReport> report);
  // A round that is published wave by wave (P43): it begins, and its next wave.
  void BeginWaves(ClosingRound round);
  bool WaveIfDue();
  // What the shards have reserved for a Join.
  struct Reservation {
    uint64_t epoch = 0;
    bool first = false;  // its manifest becomes the job's
  };
  // The body of joins_thread_.
  void ServeJoins();
  void ServeJoin(const std::shared_ptr<PendingJoin>& join);
  absl::StatusOr<Reservation> Reserve(const PendingJoin& join);
  absl::Status CheckManifest(const JoinCall& call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetManifest(PeerGroup* peers, uint64_t epoch);
  // The functions below do the loop's half of Joins.
  void MakeWayFor(const JoinCall& call);
  bool ForgetManifestIfDue();
  void FinishJoin(const std::shared_ptr<PendingJoin>& join,
                  const Reservation& reservation);
  absl::StatusOr<JoinResult> TryJoin(const PendingJoin& join,
                                     const Reservation& reservation);
  JoinResult Resume(const JoinCall& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  JoinResult Completed(JoinResult result) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The bodies of deadlines_thread_ and address_thread_.
  void CheckDeadlinesEachSecond();
  void ExpireKeptAnswers();
  void SayWhoReducesNot();
  void ExpireOrder();
  void CheckAddressEachSecond();
  // The text of the record of a round that is about to be prepared.
  std::string MakeRecord(const RoundReport& report, JobRecord record);
  std::string TextOf(JobRecord record);
  void DoLeave(uint64_t epoch, uint64_t session,
               const std::function<void(absl::Status)>& done);
  void DoEvict(int32_t rank, const std::string& reason,
               const std::function<void(absl::StatusOr<Eviction>)>& done);
  // `done` hears when all shards have confirmed what the coordinator keeps
  // (P50). FactsIfDue asks them.
  void AnswerWhenKept(const std::string& what, KeptAnswers::Done done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the reduction that is due, and sees to it that it is kept.
  void MakeReduction() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status PropagateSession(uint64_t epoch, const SessionChange& change);
  // Carries out what the job's state asks for: shards, workers and waiters
  // hear what concerns them.
  void DeliverEffects();

  const CoordinatorOptions options_;
  const Clock* const clock_;
  const FindOther find_other_;
  std::function<void(const absl::Status&)> on_superseded_;
  std::function<void(const VersionId&)> on_restored_;  // may be null
  std::function<void(const Departure&, const std::string&)> on_lost_;  // too
  PeerGroup peers_;       // used by the loop, but for peer(0)->CheckPushed
  PeerGroup join_peers_;  // the same peers, used by the joins thread
  PeerGroup checkpoint_peers_;  // likewise, by the thread of checkpoints
  PhaseWatch phase_watch_;
  RoundEngine engine_;  // used by the loop
  RoundReporter reporter_;
  std::optional<ClosingRound> waved_round_;  // under way; the loop's
  VersionId reported_;                       // of the last round; the loop's
  bool record_was_cut_ = false;              // and the log says so; the loop's
  // State of the loop: what was seen of checkpoints when all shards were
  // attached last, and what came of trying to load them.
  struct Refusal {
    std::string why;
    absl::Time until;  // it is not tried again before
  };
  std::map<VersionId, Refusal> refused_;
  bool awaits_person_ = false;  // the last recovery has ended so
  bool borrows_ = false;        // what it loads is another job's
  bool by_order_ = false;       // an operator has said what it does
  // Checkpoints that were made before this epoch do not count: an operator's
  // order or the configuration has said that the job begins anew.
  std::optional<uint64_t> begun_anew_;
  const std::shared_ptr<ShardEvents> shard_events_;  // peers hold it, too

  JoinQueue joins_;

  mutable Mutex mutex_;
  CondVar changed_;  // something may be due, or a round has ended
  CondVar stopped_;  // stop_ is set
  CondVar checkpoint_begun_;
  std::unique_ptr<CheckpointTask> checkpoint_ ABSL_GUARDED_BY(mutex_);
  bool superseded_ ABSL_GUARDED_BY(mutex_) = false;
  CoordinatorState state_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> operations_ ABSL_GUARDED_BY(mutex_);
  std::optional<Order> order_ ABSL_GUARDED_BY(mutex_);
  // Checkpoints that the shards have listed, by ordinal: of the job, and of the
  // one that restore_job names.
  std::vector<CheckpointListing> seen_ ABSL_GUARDED_BY(mutex_);
  std::vector<CheckpointListing> seen_of_other_ ABSL_GUARDED_BY(mutex_);
  KeptAnswers kept_answers_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  // Time until which the loop sleeps; InfinitePast: it is awake, and looks
  // before it sleeps again.
  absl::Time asleep_until_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  bool threaded_ = false;  // set by Start, before its threads begin
  std::thread thread_;     // the loop
  std::thread joins_thread_;
  std::thread deadlines_thread_;
  std::thread checkpoints_thread_;
  std::thread address_thread_;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_COORDINATOR_H_
