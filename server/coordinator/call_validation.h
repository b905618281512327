// Whether what a worker says makes sense by itself, whatever the job's state:
// pure functions of plain values, and the one place where a Join or a Commit
// is checked. Errors are INVALID_ARGUMENT "field is value; allowed: ...".
#ifndef AGG_SERVER_COORDINATOR_CALL_VALIDATION_H_
#define AGG_SERVER_COORDINATOR_CALL_VALIDATION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "server/coordinator/coordinator_types.h"

namespace agg {

// The rank is 0 to max_workers - 1, and ValidateManifest agrees.
absl::Status ValidateJoin(const JoinCall& call, int32_t max_workers);

// Counts are 1 or more, the loss scale is finite and above 0. The loss and the
// sum of squared norms may be anything: without a finite one, the row counts
// as one that was sent without it.
absl::Status ValidateCommit(const CommitInfo& info);

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_CALL_VALIDATION_H_
