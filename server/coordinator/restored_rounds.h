// Rounds whose reports may be lost with their coordinator, as far as the job's
// record has them: for the round log, which is to name each version (P28).
#ifndef AGG_SERVER_COORDINATOR_RESTORED_ROUNDS_H_
#define AGG_SERVER_COORDINATOR_RESTORED_ROUNDS_H_

#include <vector>

#include "server/coordinator/job_record.h"
#include "server/round/recovery.h"
#include "server/round/round_report.h"

namespace agg {

// One report for each outcome of the record that is newer than `reported`,
// oldest first. They have whose rows are in the version and why others are not,
// and no numbers. A session whose rank cannot be told any more is left out;
// its row has session 0 then. Pure.
std::vector<RoundReport> RestoredReports(const JobRecord& record,
                                         const VersionId& reported);

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_RESTORED_ROUNDS_H_
