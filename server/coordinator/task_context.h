// What the tasks of the coordinator share: the job's state with the lock that
// guards it, the shards, and what any task may bring about. A task is an object
// of the coordinator's that does one kind of work: Recovery, Restores, Joins,
// Checkpoints, HandoverTask, Rounds.
//
// Each step of a task has the same shape: look at the state under the lock,
// call the shards without it, and take the lock again to write down what came
// of it. Meanwhile a shard may be lost, so that the second look starts from
// nothing.
#ifndef AGG_SERVER_COORDINATOR_TASK_CONTEXT_H_
#define AGG_SERVER_COORDINATOR_TASK_CONTEXT_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/coordinator/coordinator_state.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/job_record.h"
#include "server/coordinator/outcome_waiters.h"
#include "server/coordinator/peer_group.h"
#include "server/coordinator/round_engine.h"
#include "server/coordinator/round_reporter.h"
#include "server/coordinator/rule_processes.h"
#include "server/round/phase.h"
#include "server/round/shard_peer.h"

namespace agg {

// Calls that wait for the loop, or for the memory of their rows, at most.
inline constexpr size_t kMaxQueuedCalls = 1024;
// UNAVAILABLE if so many wait already.
absl::Status CheckQueue(size_t num_waiting);

// Outlives the tasks. No lock is held when a peer or a callback is called.
// Methods that change membership or run phases are the loop's; the others may
// be called from any thread.
class TaskContext {
 public:
  TaskContext(const CoordinatorOptions& options, std::vector<ShardPeer*> shards,
              const Clock* clock, RoundReporter::Callback on_report,
              const PeerGroup::Order& order)
      : options(options),
        clock(clock),
        peers(std::move(shards), order),
        phase_watch(clock, options.phase_timeout, peers.names()),
        engine(options, &peers, &phase_watch),
        rule_processes(clock, options.combine),
        reporter(std::move(on_report), options.tensor_grams_every),
        state(options) {}

  // Has the loop run `operation`, or says why calls are not taken.
  absl::Status Enqueue(std::optional<uint64_t> epoch,
                       std::function<void()> operation);
  // Runs the next of them; whether there was one.
  bool RunOperation();

  // Ends the epoch, since a shard is lost. From any thread.
  void LoseEpoch(uint64_t epoch, const absl::Status& reason);
  // Tells the shards of an epoch that has ended.
  void PropagateLoss();
  // Tells the shards of a session.
  absl::Status PropagateSession(uint64_t epoch, const SessionChange& change);
  // Carries out what the job's state asks for: shards, workers and waiters
  // hear what concerns them.
  void DeliverEffects();
  // Sends the shards what they have to keep between rounds (P37), if it has
  // changed.
  void SendFacts();
  // `done` hears when all shards have confirmed what the coordinator keeps
  // (P50). SendFacts asks them.
  void AnswerWhenKept(const std::string& what, KeptAnswers::Done done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Runs a phase on all shards: one made for each, or the same one.
  absl::Status RunPhases(const std::function<Phase(int)>& make_phase);
  absl::Status RunPhase(const Phase& phase);
  // Returns the record as shards and checkpoints keep it.
  std::string TextOf(JobRecord record);

  const CoordinatorOptions options;
  const Clock* const clock;
  // Hears of each worker that is lost (IsLoss), and of what happened in words.
  // May be null. Set before the coordinator starts.
  std::function<void(const Departure&, const std::string&)> on_lost;
  PeerGroup peers;  // used by the loop, but for peer(0)->CheckPushed
  PhaseWatch phase_watch;
  RoundEngine engine;  // used by the loop
  RuleProcesses rule_processes;
  RoundReporter reporter;

  mutable Mutex mutex;
  CondVar changed;  // something may be due, or a round has ended
  CoordinatorState state ABSL_GUARDED_BY(mutex);
  KeptAnswers kept_answers ABSL_GUARDED_BY(mutex);
  std::deque<std::function<void()>> operations ABSL_GUARDED_BY(mutex);
  bool stop ABSL_GUARDED_BY(mutex) = false;

 private:
  bool record_was_cut_ = false;  // and the log says so; the loop's
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_TASK_CONTEXT_H_
