// The job's single decision maker: members, leases, commits, rounds. Runs on
// shard 0 and drives all shards through ShardPeer.
//
// It has the calls, from any thread, and the loop, which has tasks do what is
// due: Recovery begins epochs, Restores knows which checkpoint and an
// operator's word on it, Joins takes workers in, Checkpoints takes checkpoints,
// HandoverTask lets go of shards, Rounds runs rounds. What all know is in
// TaskContext.
#ifndef AGG_SERVER_COORDINATOR_COORDINATOR_H_
#define AGG_SERVER_COORDINATOR_COORDINATOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/coordinator/checkpoints.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/joins.h"
#include "server/coordinator/outcome_waiters.h"
#include "server/coordinator/peer_group.h"
#include "server/coordinator/recovery.h"
#include "server/coordinator/restores.h"
#include "server/coordinator/rounds.h"
#include "server/coordinator/rule_processes.h"
#include "server/coordinator/small_reductions.h"
#include "server/coordinator/task_context.h"
#include "server/round/recovery.h"
#include "server/round/round_report.h"
#include "server/round/shard_peer.h"

namespace agg {

// Thread-safe. One thread ("the loop", or a test that calls RunOnce) changes
// membership and runs rounds, one thing after another; commits, renewals and
// questions come from any thread, under one lock. No lock is held when a peer
// or a callback is called. Each `done` is called exactly once, by a thread of
// the coordinator's or by the caller's, but for calls that CancelWait ends.
class Coordinator {
 public:
  using OutcomeCallback = OutcomeWaiters::Callback;
  // Whether the caller of a queued call no longer waits for its answer.
  using GoneCallback = std::function<bool()>;
  using JoinCallback = std::function<void(absl::StatusOr<JoinResult>)>;
  using ReportCallback = std::function<void(const RoundReport&)>;
  using EventCallback = EventStreams::EventCallback;
  using FindOther = Recovery::FindOther;

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
  void CheckAddress() { recovery_.CheckAddress(); }
  // Sets what hears of each checkpoint that the job goes on from, on the loop;
  // it must not block. Before Start.
  void SetOnRestored(std::function<void(const VersionId&)> callback) {
    recovery_.SetOnRestored(std::move(callback));
  }
  // Sets what hears of each worker that is lost (IsLoss), and of what happened
  // in words, on the loop or the thread of a call; it must not block. Before
  // Start.
  void SetOnLost(
      std::function<void(const Departure&, const std::string&)> callback) {
    context_.on_lost = std::move(callback);
  }
  // Sets what is called at most once, from any thread, by a coordinator that
  // has held an epoch and is replaced. Before Start.
  void SetOnSuperseded(std::function<void(const absl::Status&)> callback) {
    recovery_.SetOnSuperseded(std::move(callback));
  }

  // --- Calls of workers. UNAVAILABLE while no epoch is on, when draining, or
  // when kMaxQueuedCalls wait; ABORTED for another epoch; and as JobState says.
  //
  // A Join gets the shards' error if one of them cannot reserve its memory, and
  // UNAVAILABLE if that takes longer than JoinQueue::kTimeout; the job goes on.
  // One whose caller has `gone` (null: it stays) makes no member: CANCELLED.
  // One that cannot succeed as things are is refused at once.
  void Join(JoinCall call, JoinCallback done, GoneCallback gone = nullptr) {
    joins_.Join(std::move(call), std::move(done), std::move(gone));
  }
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

  // --- Calls of the processes that decide external rules (P52), whatever the
  // epoch: RuleProcesses::Poll, and the end of one that waits.
  uint64_t PollRule(RulePoll poll, RuleProcesses::Give give) {
    return context_.rule_processes.Poll(std::move(poll), std::move(give));
  }
  void CancelPollRule(uint64_t number) {
    context_.rule_processes.CancelPoll(number);
  }

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
      std::function<void(absl::StatusOr<TakenCheckpoint>)> done) {
    checkpoints_.Take(std::move(done));
  }
  // Says which checkpoints there are, or has the job go on from one of them, or
  // begin anew, which it would not by itself (P29). That may end the epoch.
  // Answered when it is done, and a checkpoint of it complete.
  // FAILED_PRECONDITION (none configured; it cannot be loaded, with what is
  // missing where; to begin anew: a job that has parameters), NOT_FOUND (nobody
  // sees such a one), UNAVAILABLE (draining, or not all shards were there
  // within kOrderTimeout: then it is not done later either). ParseRestore: what
  // RestoreRequest of proto/admin.proto has; INVALID_ARGUMENT.
  static constexpr absl::Duration kOrderTimeout = Restores::kOrderTimeout;
  static absl::StatusOr<RestoreCall> ParseRestore(const std::string& text) {
    return Restores::ParseRestore(text);
  }
  void Restore(const RestoreCall& call,
               std::function<void(absl::StatusOr<RestoreResult>)> done) {
    restores_.Restore(call, std::move(done));
  }
  // Lets a finished job go on, through a new epoch. Answered when all shards
  // know it, and their checkpoints. Errors: CoordinatorState::Resume's, and
  // UNAVAILABLE as Restore has it.
  void Resume(std::function<void(absl::StatusOr<ResumeResult>)> done) {
    restores_.Resume(std::move(done));
  }
  // Returns what Resume would answer now, and does nothing.
  absl::StatusOr<ResumeResult> MayResume() const {
    return restores_.MayResume();
  }
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
  std::vector<RoundResult> Rounds() const;          // see RecentRounds
  std::vector<double> TensorOrthogonality() const;  // see RecentRounds
  bool finished() const;

 private:
  // --- The loop. Those that end in IfDue return whether they did anything.
  void Loop();
  // Wakes the loop if something is due. To be called when a commit or a report
  // has come: most close no round, and the loop sleeps on.
  void WakeLoopIfDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_.mutex);
  // Ends the sessions whose lease is over.
  bool ExpireIfDue();
  void DoLeave(uint64_t epoch, uint64_t session,
               const std::function<void(absl::Status)>& done);
  void DoEvict(int32_t rank, const std::string& reason,
               const std::function<void(absl::StatusOr<Eviction>)>& done);
  // Makes the reduction that is due, and sees to it that it is kept.
  void MakeReduction() ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_.mutex);

  // --- News of shards, from any thread: somebody stops the shard, which waits
  // to be let go (P35); rows are complete on it, whose commits may have come.
  void NoteDraining(uint64_t epoch, int ordinal);
  void NoteComplete(uint64_t epoch, int ordinal,
                    const std::vector<CompleteRow>& rows);

  // Calls `look` again and again, until the coordinator stops.
  void EachSecond(const std::function<void()>& look);

  TaskContext context_;
  const std::shared_ptr<ShardEvents> shard_events_;  // peers hold it, too
  const bool has_address_;  // another coordinator may be found there
  // --- The tasks.
  Restores restores_;
  Recovery recovery_;
  Joins joins_;
  Checkpoints checkpoints_;
  HandoverTask handover_;
  agg::Rounds rounds_;

  CondVar stopped_;  // context_.stop is set
  // Time until which the loop sleeps; InfinitePast: it is awake, and looks
  // before it sleeps again.
  absl::Time asleep_until_ ABSL_GUARDED_BY(context_.mutex) =
      absl::InfinitePast();
  bool threaded_ = false;  // set by Start, before its threads begin
  std::vector<std::thread> threads_;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_COORDINATOR_H_
