// The long polls: who waits for the outcome of which round. They are bounded,
// since each keeps memory that a peer asks for. Also the Attend streams of
// sessions, answers that wait for the shards, and callbacks that wait until a
// lock is released.
#ifndef AGG_SERVER_COORDINATOR_OUTCOME_WAITERS_H_
#define AGG_SERVER_COORDINATOR_OUTCOME_WAITERS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
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

// Callbacks that wait until a lock is released. Whoever changes state under a
// lock collects here what others have to hear, and calls Run after the lock is
// released: a callback may take locks of its own, or call back.
// Thread-compatible.
class DeferredCalls {
 public:
  void Add(std::function<void()> call) { calls_.push_back(std::move(call)); }
  void Add(DeferredCalls others) {
    for (std::function<void()>& call : others.calls_) Add(std::move(call));
  }
  bool empty() const { return calls_.empty(); }

  // Runs them in the order of Add. REQUIRES: no lock is held.
  void Run() const {
    for (const std::function<void()>& call : calls_) call();
  }

 private:
  std::vector<std::function<void()>> calls_;
};

// Holds a lock, and calls what others have to hear when it has been released.
class ABSL_SCOPED_LOCKABLE TellingLock {
 public:
  explicit TellingLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(mutex) {
    mutex_->Lock();
  }
  ~TellingLock() ABSL_UNLOCK_FUNCTION() {
    mutex_->Unlock();
    calls_.Run();
  }
  TellingLock(const TellingLock&) = delete;
  TellingLock& operator=(const TellingLock&) = delete;

  void Tell(DeferredCalls calls) { calls_.Add(std::move(calls)); }
  void Tell(std::function<void()> call) { calls_.Add(std::move(call)); }

 private:
  Mutex* const mutex_;
  DeferredCalls calls_;
};

// Which sessions attend: who holds an Attend stream open, and where events for
// a session go. The one place that knows. A worker that reconnects opens its
// next stream before the server has noticed the end of the former one. So a
// session may have several streams, of which the newest speaks for it (P33): it
// gets the events, and the session attends until that one ends. Older ones are
// forgotten. Thread-compatible.
class EventStreams {
 public:
  using EventCallback = std::function<void(const JobEvent&)>;

  // A stream of `session` has opened. Returns the stream's number, for Close.
  uint64_t Open(uint64_t session, EventCallback on_event);
  // The stream has ended. Returns its session if this was the newest stream of
  // it; nothing if a newer one has opened, or the session has been forgotten.
  std::optional<uint64_t> Close(uint64_t stream);
  // The session is over: later Close calls of its streams do nothing.
  void Forget(uint64_t session);
  void ForgetAll() { newest_.clear(); }

  bool Attends(uint64_t session) const;
  // Where events for the session go; null if it does not attend.
  EventCallback CallbackOf(uint64_t session) const;
  // One callback for each session that attends.
  std::vector<EventCallback> AllCallbacks() const;

 private:
  struct Stream {
    uint64_t number;
    EventCallback on_event;
  };
  std::map<uint64_t, Stream> newest_;  // by session
  uint64_t next_number_ = 1;
};

// Answers that go out when all shards keep what they say (P50): so that no
// process that is lost behind one takes it along. Thread-compatible. Each
// `done` is called once, by what the methods return.
class KeptAnswers {
 public:
  using Done = std::function<void(const absl::Status&)>;
  // How long an answer waits for shards, which may be frozen or gone.
  static constexpr absl::Duration kTimeout = absl::Seconds(30);

  size_t size() const { return waiting_.size() + sent_.size(); }
  // `what` has been done, in words: "rank 1 is evicted". It waits for the next
  // Send.
  void Add(std::string what, absl::Time now, Done done);
  // All that wait so far go to the shards with what is sent now.
  void Send();
  // All shards have what was sent.
  DeferredCalls Kept();
  // They have not: it is sent again.
  void NotKept();
  // Nothing will be sent any more.
  DeferredCalls Refuse(const absl::Status& reason);
  // UNAVAILABLE for those that have waited for kTimeout: what was done, who is
  // waited for (`why`), and that the call may be repeated.
  DeferredCalls Expire(absl::Time now, const std::string& why);

 private:
  struct Answer {
    std::string what;
    absl::Time until;
    Done done;
  };
  std::vector<Answer> waiting_;
  std::vector<Answer> sent_;  // on their way
};

// Each callback is called exactly once, by the DeferredCalls that a method
// returns, unless its waiter is removed; until then it is kept here.
// Thread-compatible.
class OutcomeWaiters {
 public:
  // The call that waits. The two have bounds of their own: anybody may call
  // WaitRound, and must not keep a worker from committing.
  enum class Call : uint8_t { kCommit, kWaitRound };
  // Waiting calls of one kind and session, and WaitRounds in all.
  static constexpr size_t kMaxPerSession = 16;
  static constexpr size_t kMaxWaitRounds = 4096;

  using Callback = std::function<void(absl::StatusOr<RoundResult>)>;

  // Calls `done` with an answer that is known. REQUIRES: !IsPending(answer).
  static void Reply(const Callback& done, const OutcomeAnswer& answer);

  // Keeps `done` and returns the waiter's number, which is not 0. `done` is not
  // kept if the bounds are reached: RESOURCE_EXHAUSTED.
  absl::StatusOr<uint64_t> Add(Call call, const OutcomeQuery& query,
                               Callback done);
  // Calls `done` with an answer that is known, or with the error of Add; else
  // keeps it, and *number is the waiter's. 0: it is not kept.
  DeferredCalls Answer(Call call, const OutcomeQuery& query,
                       OutcomeAnswer answer, Callback done, uint64_t* number);
  // The caller has gone: its callback is forgotten. A number that is not known
  // (any more) changes nothing.
  void Remove(uint64_t number);
  size_t size() const { return waiters_.size(); }

  // Asks for each waiter's answer; those that have one now are replied to.
  DeferredCalls ReplyToKnown(
      const std::function<OutcomeAnswer(const OutcomeQuery&)>& ask);
  // The waiters of one session, or all, get `reason`, which is not OK.
  DeferredCalls FailSession(uint64_t session, const absl::Status& reason);
  DeferredCalls FailAll(const absl::Status& reason);

 private:
  struct Waiter {
    uint64_t number;
    Call call;
    OutcomeQuery query;
    Callback done;
  };
  absl::Status CheckRoom(Call call, uint64_t session) const;

  std::vector<Waiter> waiters_;  // in the order of Add
  uint64_t last_number_ = 0;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_OUTCOME_WAITERS_H_
