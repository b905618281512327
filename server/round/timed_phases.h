// The phases of a round that are timed: the one table of their names, for
// metrics, the status page and the trace.
#ifndef AGG_SERVER_ROUND_TIMED_PHASES_H_
#define AGG_SERVER_ROUND_TIMED_PHASES_H_

#include <array>

#include "absl/time/time.h"
#include "server/round/round_report.h"
#include "server/round/shard_seconds.h"

namespace agg {

struct TimedPhase {
  const char* name;
  absl::Duration PhaseDurations::*length;  // as the coordinator saw it
  double ShardSeconds::*shard;             // null: the coordinator's alone
};

// In the order in which they run.
inline constexpr std::array<TimedPhase, 7> kTimedPhases = {{
    {"wait", &PhaseDurations::wait, nullptr},
    {"gram", &PhaseDurations::gram, &ShardSeconds::gram},
    {"compensated", &PhaseDurations::compensated, &ShardSeconds::compensated},
    {"decide", &PhaseDurations::decide, nullptr},
    {"norms", &PhaseDurations::norms, &ShardSeconds::norms},
    {"update", &PhaseDurations::update, &ShardSeconds::update},
    {"publish", &PhaseDurations::publish, &ShardSeconds::publish},
}};

}  // namespace agg

#endif  // AGG_SERVER_ROUND_TIMED_PHASES_H_
