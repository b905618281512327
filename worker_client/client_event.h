// What a client hears of its job without asking, and as text.
#ifndef AGG_WORKER_CLIENT_CLIENT_EVENT_H_
#define AGG_WORKER_CLIENT_CLIENT_EVENT_H_

#include <cstdint>
#include <string>

namespace agg {

// Sent to ClientOptions::on_event.
struct ClientEvent {
  enum class Kind {
    // A shard is lost, and recovery_window is 0: every call fails with
    // UNAVAILABLE from now on.
    kShardLost,
    kFinished,    // no more rounds; pulls still work
    kSuperseded,  // another session took the rank: every call is ABORTED
    kSeedRole,    // this worker is now the one to Seed
    kDraining,    // the server is shutting down
    // The lease ran out, and recovery_window is 0: calls fail with NOT_FOUND;
    // Connect again.
    kExpired,
    kEvicted,  // an operator ended this session: every call is ABORTED
    // Nothing is wrong yet, but somebody is waited for: the coordinator itself
    // (during Connect), or workers. `message` says who.
    kWaiting,
    // The job has lost a process, or this client its session: calls wait.
    // `message` says for what; at once, and each few seconds when it changes.
    kRecovering,
    kRecovered,  // calls go on; `version` is the job's newest
    // The job has gone back to `version`; `message` names both versions.
    kRewound,
    kAuditLog,  // ClientOptions::audit_log cannot be written: it ends here
    // Another worker is gone that has not left: `message` says which one and
    // why. Rounds go on without it.
    kWorkerLost,
    // A round was skipped, or has left out a row: `message` says which. Comes
    // for the first skipped round, for the first row that is left out of each
    // rank, and at the end with how many there were.
    kLeftOut,
  };
  Kind kind = Kind::kFinished;
  uint64_t version = 0;
  std::string message;
};

// One line for people: "waiting: 31 of 32 workers have not joined: ranks 1-31".
std::string ToString(const ClientEvent& event);

// Writes that line to stderr, in one piece, or not at all where whoever reads
// stderr has left no room: the next line says how many are missing. For
// ClientOptions::on_event. Says nothing of the events of every job: kSeedRole,
// kFinished.
void PrintEvent(const ClientEvent& event);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_CLIENT_EVENT_H_
