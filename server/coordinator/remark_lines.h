// Which rounds' messages get a line in the log.
#ifndef AGG_SERVER_COORDINATOR_REMARK_LINES_H_
#define AGG_SERVER_COORDINATOR_REMARK_LINES_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "server/coordinator/skipped_run.h"
#include "server/round/round_report.h"

namespace agg {

// A worker that is an outlier is mostly one round after round, and so are rows
// too few for Krum or to judge outliers: a round that has nothing else to say
// gets no line until so long after the last such line.
inline constexpr absl::Duration kUsualLineInterval = absl::Seconds(10);

// Thread-compatible.
class RemarkLines {
 public:
  // The line about a round that `run` has noted and that ended `now`; "": it
  // gets none, as it has no message, or rounds like it had their line.
  std::string Next(const RoundReport& report, const SkippedRun& run,
                   absl::Time now);

 private:
  absl::Time last_usual_ = absl::InfinitePast();  // line of such a round
  uint64_t unsaid_ = 0;  // such rounds since, without a line
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_REMARK_LINES_H_
