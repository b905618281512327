// Whether what a worker says makes sense by itself, whatever the job's state:
// pure functions of plain values, and the one place where a Join or a Commit
// is checked. Errors are INVALID_ARGUMENT "field is value; allowed: ...".
#ifndef AGG_SERVER_COORDINATOR_CALL_VALIDATION_H_
#define AGG_SERVER_COORDINATOR_CALL_VALIDATION_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/coordinator/coordinator_types.h"

namespace agg {

// Bytes of a text that people read in logs, answers and pages, at most.
inline constexpr int kMaxTextBytes = 512;

// INVALID_ARGUMENT for a text of more than `max_bytes`: kept, logged and sent
// to others, it would cost each of them what one peer has sent.
absl::Status ValidateText(absl::string_view field, absl::string_view text,
                          int max_bytes = kMaxTextBytes);

// The rank is 0 to max_workers - 1, and the client's text has at most
// kMaxTextBytes. The manifest is another matter (JobState::CheckJoin).
absl::Status ValidateJoin(const JoinCall& call, int32_t max_workers);

// Counts are 1 or more, the loss scale is finite and above 0, and the sum of
// squared norms is not below 0. The loss may be anything. A sum that is NaN or
// infinite is taken: a row that has overflowed has such a sum, and its worker
// has to be able to commit it. It counts as a row that was sent without one.
absl::Status ValidateCommit(const CommitInfo& info);

// CommitRequest.absent_tensors names optional tensors of the manifest alone.
absl::Status ValidateAbsentTensors(const std::string& bits,
                                   const Manifest& manifest);

// CommitRequest.row_crc32c is empty or has one entry per shard.
absl::Status ValidateRowCrc32c(const std::vector<uint32_t>& row_crc32c,
                               int num_shards);

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_CALL_VALIDATION_H_
