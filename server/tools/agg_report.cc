// agg_report: makes an HTML report of a run from its round log. Exit codes: 0,
// 1 if the report cannot be written, 2 for bad flags and unreadable logs.
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "server/tools/run_report.h"

namespace agg {
namespace {

constexpr char kUsage[] =
    "usage: agg_report --log=rounds.binlog --output=report.html\n"
    "\n"
    "  --log=PATH     a round log (round_log.path of the job's config); "
    "several\n"
    "                 in the order of their rounds: --log=PATH.1 --log=PATH\n"
    "  --output=PATH  the report, one HTML file\n";

int Fail(int code, absl::string_view message) {
  std::cerr << "agg_report: " << message << std::endl;
  return code;
}

int Run(const std::vector<std::string>& logs, const std::string& output) {
  RunReport report;
  for (const std::string& log : logs) {
    const absl::Status status = report.AddLog(log);
    if (!status.ok()) return Fail(2, status.message());
  }
  const absl::StatusOr<std::string> html = report.Html();
  if (!html.ok()) return Fail(2, html.status().message());
  std::ofstream file(output, std::ios::binary);
  file << *html;
  file.close();
  if (!file) return Fail(1, absl::StrCat("cannot write ", output));
  return 0;
}

int Main(const std::vector<std::string>& arguments) {
  std::vector<std::string> logs;
  std::string output;
  for (const std::string& argument : arguments) {
    absl::string_view value = argument;
    if (argument == "--help") {
      std::cout << kUsage;
      return 0;
    }
    if (absl::ConsumePrefix(&value, "--log=") && !value.empty()) {
      logs.emplace_back(value);
    } else if (absl::ConsumePrefix(&value, "--output=") && !value.empty()) {
      output = std::string(value);
    } else {
      return Fail(2, absl::StrCat("unknown or empty: ", argument,
                                  "; see agg_report --help"));
    }
  }
  if (logs.empty()) return Fail(2, "--log is missing; see agg_report --help");
  if (output.empty()) {
    return Fail(2, "--output is missing; see agg_report --help");
  }
  return Run(logs, output);
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) {
  return agg::Main(std::vector<std::string>(argv + 1, argv + argc));
}
