// The phases of a job, and the one place that has their names. Server, metrics,
// probes and the tools that talk to a job share them.
#ifndef AGG_SERVER_BASE_JOB_PHASE_H_
#define AGG_SERVER_BASE_JOB_PHASE_H_

#include <array>
#include <cstddef>
#include <cstdint>

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

}  // namespace agg

#endif  // AGG_SERVER_BASE_JOB_PHASE_H_
