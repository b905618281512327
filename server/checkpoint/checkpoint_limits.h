// The longest texts that a job keeps, apart so that those who write them and
// those who read them have the same bounds (proto/README.md, Limits).
#ifndef AGG_SERVER_CHECKPOINT_CHECKPOINT_LIMITS_H_
#define AGG_SERVER_CHECKPOINT_CHECKPOINT_LIMITS_H_

#include <cstdint>

namespace agg {

// Size limit of the job's record, which is JSON. A rule remembers a number for
// each tensor and worker at most, of up to 26 characters with what is between
// them: 1.33 GB for 100,000 tensors and 512 workers. All else is small beside
// that, except what shadow rules remember.
inline constexpr int64_t kMaxJobRecordBytes = 1'400'000'000;
// Size limit of manifest.json, which has the record in base64, and names and
// shapes of the tensors.
inline constexpr int64_t kMaxManifestBytes = 2'100'000'000;

}  // namespace agg

#endif  // AGG_SERVER_CHECKPOINT_CHECKPOINT_LIMITS_H_
