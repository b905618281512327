// Runs the agg_combine binary.
#ifndef AGG_TESTS_SERVER_TOOLS_RUN_AGG_COMBINE_H_
#define AGG_TESTS_SERVER_TOOLS_RUN_AGG_COMBINE_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "server/base/json.h"
#include "tests/worker_client/npz/npy_files.h"

namespace agg {

struct RunResult {
  int exit_code = -1;
  std::vector<Json> lines;  // of stdout
  std::string error;        // stderr
};

// Arguments hold nothing that a shell would touch.
RunResult RunTool(const std::vector<std::string>& arguments);

// Options, then one file per step; expects success and a line per step.
RunResult RunSteps(std::vector<std::string> options,
                   const std::vector<Rows>& steps,
                   const std::string& type = "<f8");

}  // namespace agg

#endif  // AGG_TESTS_SERVER_TOOLS_RUN_AGG_COMBINE_H_
