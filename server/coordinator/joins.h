// Joins, in two halves (P32). Memory is reserved on all shards by the joins
// thread, one worker after another, which may take long and harms nobody; then
// the loop takes the worker in, which allocates nothing. JoinQueue is apart
// from Joins so that who is answered what, and when, can be tested without
// shards.
#ifndef AGG_SERVER_COORDINATOR_JOINS_H_
#define AGG_SERVER_COORDINATOR_JOINS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/job_state.h"
#include "server/coordinator/peer_group.h"
#include "server/coordinator/task_context.h"
#include "server/round/shard_peer.h"

namespace agg {

// One Join: reserving -> joining -> answered, or reserving -> answered. Its
// answer is given once. Thread-safe.
class PendingJoin {
 public:
  using Done = std::function<void(absl::StatusOr<JoinResult>)>;
  // Whether the caller no longer waits for the answer. May be null: it waits.
  using Gone = std::function<bool()>;

  PendingJoin(JoinCall call, Done done, Gone gone, absl::Time deadline)
      : call_(std::move(call)),
        done_(std::move(done)),
        gone_(std::move(gone)),
        deadline_(deadline) {}

  const JoinCall& call() const { return call_; }
  // Time by which the loop has to have it.
  absl::Time deadline() const { return deadline_; }

  // CANCELLED when nobody waits for the answer. A worker that does not know its
  // session could neither work nor leave, and the round would wait for it until
  // its lease is over.
  absl::Status CheckCaller() const;
  // Makes the loop the only one that answers from now on. False: the Join has
  // been answered.
  bool BeginJoining();
  // Answers with `status`. False, and nothing happens, if the loop has the Join
  // or it has been answered.
  bool Refuse(const absl::Status& status);
  // REQUIRES: BeginJoining was true; at most once.
  void Answer(absl::StatusOr<JoinResult> result);

 private:
  enum class State { kReserving, kJoining, kAnswered };
  const JoinCall call_;
  const Done done_;
  const Gone gone_;
  const absl::Time deadline_;
  std::atomic<State> state_{State::kReserving};
};

// One Join at a time is served; the others wait. Thread-safe; no lock is held
// when a Join is answered.
class JoinQueue {
 public:
  // Limit of a reservation, and of waiting behind others.
  static constexpr absl::Duration kTimeout = absl::Seconds(30);

  // UNAVAILABLE when kMaxQueuedCalls wait. Their manifests are bounded by who
  // takes them from the network (ManifestBook,
  // server/rpc/coordinator_service.h).
  absl::Status Add(std::shared_ptr<PendingJoin> join);
  // The next one to be served; null while one is served, and if there is none.
  std::shared_ptr<PendingJoin> TryNext();
  // Waits for one; null after Stop.
  std::shared_ptr<PendingJoin> Next();
  // Notes that the served one has got what it needs: the next may come.
  void Served();

  // The shards (their names, by ordinal) whose memory the served one needs, and
  // that one of them has reserved it or refused.
  void WaitFor(std::vector<std::string> shards);
  void NoteAnswer(int ordinal);

  // Refuses those whose deadline has passed: UNAVAILABLE naming who is waited
  // for. What shards do for the served one goes on.
  void Expire(absl::Time now);
  // Makes Next return null from now on.
  void Stop();

 private:
  std::shared_ptr<PendingJoin> Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // "shard 1 (h:2) has not reserved memory for rank 3 within 30s".
  std::string WhatIsLate() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<PendingJoin>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<PendingJoin> served_ ABSL_GUARDED_BY(mutex_);
  // Names of the shards that are waited for, by ordinal; "": it has answered.
  std::vector<std::string> awaited_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

// Takes workers in. Join and Expire may be called from any thread; Serve is the
// joins thread's, and the rest the loop's.
class Joins {
 public:
  // The context outlives it, and so do `shards`, which the joins thread uses.
  Joins(TaskContext* context, std::vector<ShardPeer*> shards,
        const PeerGroup::Order& order)
      : context_(context), peers_(std::move(shards), order) {}

  // Takes a call as Coordinator::Join has it.
  void Join(JoinCall call, PendingJoin::Done done, PendingJoin::Gone gone);
  // Refuses those that have waited for too long.
  void Expire(absl::Time now) { queue_.Expire(now); }
  // Serves one after another, until Stop.
  void Serve();
  void Stop() { queue_.Stop(); }
  // Serves the next one, without the joins thread; whether there was one.
  bool ServeNext();

  // Gives the manifest of a job up that nobody holds (P3). Returns whether it
  // did anything.
  bool RunIfDue();

 private:
  // What the shards have reserved for a Join.
  struct Reservation {
    uint64_t epoch = 0;
    bool first = false;  // its manifest becomes the job's
  };
  // Whether what was reserved has gone with the job's manifest, or goes with
  // it.
  static bool IsGone(const Reservation& reservation, const JobState& job);
  absl::Status CheckManifest(const JoinCall& call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->mutex);
  void MakeWayFor(const JoinCall& call);
  void ServeOne(const std::shared_ptr<PendingJoin>& join);
  absl::StatusOr<Reservation> Reserve(const PendingJoin& join);
  void ForgetManifest(PeerGroup* peers, uint64_t epoch);
  void FinishJoin(const std::shared_ptr<PendingJoin>& join,
                  const Reservation& reservation);
  absl::StatusOr<JoinResult> TryJoin(const PendingJoin& join,
                                     const Reservation& reservation);
  JoinResult Resume(const JoinCall& call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->mutex);

  TaskContext* const context_;
  PeerGroup peers_;  // used by the thread that serves
  JoinQueue queue_;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_JOINS_H_
