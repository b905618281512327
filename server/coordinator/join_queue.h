// Workers that have asked to join, up to the moment when the loop takes them in
// (P32): memory for them is reserved on all shards first, one after another, on
// a thread of the coordinator's own. Apart from the coordinator so that who is
// answered what, and when, can be tested without shards.
#ifndef AGG_SERVER_COORDINATOR_JOIN_QUEUE_H_
#define AGG_SERVER_COORDINATOR_JOIN_QUEUE_H_

#include <atomic>
#include <cstddef>
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
  static constexpr size_t kMaxWaiting = 1024;
  // Limit of a reservation, and of waiting behind others.
  static constexpr absl::Duration kTimeout = absl::Seconds(30);

  // UNAVAILABLE when kMaxWaiting wait. Their manifests are bounded by who takes
  // them from the network (ManifestBook,
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

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_JOIN_QUEUE_H_
