// The command line of agg_combine.
#ifndef AGG_SERVER_TOOLS_COMBINE_FLAGS_H_
#define AGG_SERVER_TOOLS_COMBINE_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/tools/combine_step.h"

namespace agg {

struct CombineFlags {
  std::vector<std::string> gradients;  // .npy files in the order of steps
  std::string output;                  // "": the vector is not written
  CombineStepOptions options;          // validated
  std::string text;  // of --help or --version, to print instead; "": run
};

// INVALID_ARGUMENT in one line that names the flag (or, for a value that no
// rule takes, the option of the configuration), its value and what is allowed.
absl::StatusOr<CombineFlags> ParseCombineFlags(
    const std::vector<std::string>& arguments);

}  // namespace agg

#endif  // AGG_SERVER_TOOLS_COMBINE_FLAGS_H_
