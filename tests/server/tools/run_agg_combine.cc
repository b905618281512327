#include "tests/server/tools/run_agg_combine.h"

#include <sys/wait.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/base/json.h"

namespace agg {

RunResult RunTool(const std::vector<std::string>& arguments) {
  const std::string out = ::testing::TempDir() + "/stdout";
  const std::string err = ::testing::TempDir() + "/stderr";
  const std::string command =
      absl::StrCat("server/tools/agg_combine ", absl::StrJoin(arguments, " "),
                   " >", out, " 2>", err);
  RunResult result;
  const int status = std::system(command.c_str());
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  const std::string text = ReadTestFile(out);
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    EXPECT_FALSE(json.is_discarded()) << line;
    if (!json.is_discarded()) result.lines.push_back(std::move(json));
  }
  result.error = ReadTestFile(err);
  return result;
}

RunResult RunSteps(std::vector<std::string> options,
                   const std::vector<Rows>& steps, const std::string& type) {
  for (size_t t = 0; t < steps.size(); ++t) {
    options.push_back(absl::StrCat(
        "--gradients=",
        WriteTestFile(absl::StrCat("step", t, ".npy"), Npy(steps[t], type))));
  }
  const RunResult result = RunTool(options);
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_EQ(result.lines.size(), steps.size());
  return result;
}

}  // namespace agg
