// Memory as large as a shard's part, for a vector: an error where there is
// none, since an exception would end the process.
#ifndef AGG_SERVER_BASE_TRY_RESIZE_H_
#define AGG_SERVER_BASE_TRY_RESIZE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace agg {

// values->resize(num_values), which touches all of it. RESOURCE_EXHAUSTED, with
// the vector as it was: the host has no such memory.
// REQUIRES: num_values >= 0.
absl::Status TryResize(int64_t num_values, std::vector<float>* values);

}  // namespace agg

#endif  // AGG_SERVER_BASE_TRY_RESIZE_H_
