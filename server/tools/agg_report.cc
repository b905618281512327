// agg_report: makes an HTML report of a run from its round log.
//
// Exit codes: 0 written; 1 the report cannot be written; 2 a bad flag, or a
// log that cannot be read. Errors are one line on stderr, and so is a note for
// each log whose end could not be read.
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/atomic_file.h"
#include "server/base/flags.h"
#include "server/base/version.h"
#include "server/tools/run_report.h"

namespace agg {
namespace {

Program AggReport(std::vector<std::string>* logs, std::string* output) {
  Program program;
  program.name = "agg_report";
  program.summary = "agg_report: makes an HTML report of a run.";
  program.version = absl::StrCat("agg_report ", kVersion, "\n");
  const auto add_log = [logs](const std::string& path) {
    logs->push_back(path);
    return !path.empty();
  };
  program.flags = {
      {"--log",
       "PATH",
       "a round log (round_log.path of the job's config); several in the "
       "order of their rounds: --log=PATH.1 --log=PATH",
       {"the path of a round log", add_log},
       /*required=*/true},
      {"--output", "PATH", "the report, one HTML file",
       TextValue(output, "the path of the report"), /*required=*/true},
  };
  return program;
}

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
  for (const std::string& note : report.notes()) {
    std::cerr << "agg_report: " << note << std::endl;
  }
  const absl::StatusOr<std::string> html = report.Html();
  if (!html.ok()) return Fail(2, html.status().message());
  const absl::Status written = WriteFile(output, *html);
  if (written.ok()) return 0;
  return Fail(1, OutputError("--output", output, written).message());
}

int Main(const std::vector<std::string>& arguments) {
  std::vector<std::string> logs;
  std::string output;
  const absl::StatusOr<ParsedFlags> parsed =
      ParseFlags(AggReport(&logs, &output), arguments);
  if (!parsed.ok()) return Fail(2, parsed.status().message());
  if (!parsed->text.empty()) {
    std::cout << parsed->text;
    return 0;
  }
  return Run(logs, output);
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) {
  return agg::Main(std::vector<std::string>(argv + 1, argv + argc));
}
