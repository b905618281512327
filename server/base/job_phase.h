// The phases of a job and what a worker does in them, and the one place that
// has their names. Server, metrics, probes and the tools that talk to a job
// share them: the status page and aggctl must not call one thing by two names.
#ifndef AGG_SERVER_BASE_JOB_PHASE_H_
#define AGG_SERVER_BASE_JOB_PHASE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace agg {

enum class JobPhase : uint8_t {
  kWaitingForShards,  // at the start, until the coordinator has all shards
  kUnseeded,          // the job has no parameters yet
  kOpen,              // a round takes commits
  kClosing,           // a round is closed and computed
  kFinished,          // no round follows
  kShardLost,         // the epoch ended; a new seed begins the next
  kDraining,          // the process is about to end
};

// Names of the phases, by JobPhase, as StatusReply.phase in proto/agg.proto and
// the label of aggserver_job_phase have them.
inline constexpr std::array<const char*, 7> kJobPhaseNames = {
    "waiting_for_shards", "unseeded",   "open",    "closing",
    "finished",           "shard_lost", "draining"};

inline const char* PhaseName(JobPhase phase) {
  return kJobPhaseNames[static_cast<size_t>(phase)];
}

// What the coordinator knows of a worker with a session.
struct WorkerFacts {
  bool committed = false;       // the open round
  bool missing = false;         // the open round needs it to close
  double waited_seconds = 0.0;  // over 0: others have committed, it has not
};

// What a worker does for the open round, in the word that people see.
// `phase`: the name of a JobPhase; a client has it from StatusReply.phase.
//   "joined"      the job has no open round: not seeded, finished, lost
//   "committed"   done with the open round
//   "waited for"  the open round has a commit, and lacks this worker's
//   "computing"   the open round lacks all commits so far
//   "next round"  takes part from the next round on
// Never null.
const char* WorkerWord(absl::string_view phase, const WorkerFacts& worker);

}  // namespace agg

#endif  // AGG_SERVER_BASE_JOB_PHASE_H_
