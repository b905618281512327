// The command line of agg_pull.
#ifndef AGG_WORKER_CLIENT_TOOLS_AGG_PULL_FLAGS_H_
#define AGG_WORKER_CLIENT_TOOLS_AGG_PULL_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"

namespace agg {

struct AggPullFlags {
  std::string coordinator = "127.0.0.1:50051";
  std::string output;                // required
  absl::optional<uint64_t> version;  // default: the newest
  bool help = false;
};

extern const char kAggPullUsage[];

// Of "--flag=value" arguments. INVALID_ARGUMENT naming the flag, the value
// and what is allowed.
absl::StatusOr<AggPullFlags> ParseAggPullFlags(
    const std::vector<std::string>& arguments);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TOOLS_AGG_PULL_FLAGS_H_
