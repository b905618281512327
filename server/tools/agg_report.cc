// agg_report: makes an HTML report of a run from its round log, or audits the
// log: whether each gradient counted exactly once (P28).
//
// Exit codes: 0 written, or the audit found nothing wrong; 1 the report cannot
// be written, or the audit found violations; 2 a bad flag, a log that cannot be
// read, or nothing to check. Errors are one line on stderr, and so is a note
// for each log whose end could not be read. An audit writes to stdout.
#include <signal.h>

#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/atomic_file.h"
#include "server/base/flags.h"
#include "server/base/utf8.h"
#include "server/base/version.h"
#include "server/tools/round_audit.h"
#include "server/tools/run_report.h"

namespace agg {
namespace {

struct Request {
  std::vector<std::string> logs;
  std::string output;
  std::vector<std::string> audited;
  std::vector<std::string> workers;
};

FlagValue PathList(std::vector<std::string>* paths, const std::string& what) {
  return {what, [paths](const std::string& path) {
            paths->push_back(path);
            return !path.empty();
          }};
}

Program AggReport(Request* request) {
  Program program;
  program.name = "agg_report";
  program.summary = "agg_report: makes an HTML report of a run, or audits it.";
  program.version = absl::StrCat("agg_report ", kVersion, "\n");
  program.flags = {
      {"--log", "PATH",
       "a round log (round_log.path of the job's config); several in the "
       "order of their rounds: --log=PATH.1 --log=PATH",
       PathList(&request->logs, "the path of a round log")},
      {"--output", "PATH", "the report, one HTML file",
       TextValue(&request->output, "the path of the report")},
      {"--audit", "PATH",
       "instead of a report: whether each gradient in this round log counted "
       "exactly once; several as for --log",
       PathList(&request->audited, "the path of a round log")},
      {"--worker", "PATH",
       "with --audit: a worker's own log (ClientOptions::audit_log); several "
       "in any order",
       PathList(&request->workers, "the path of a worker's log")},
  };
  return program;
}

int Fail(int code, absl::string_view message) {
  std::cerr << "agg_report: " << Shown(message, /*keep_lines=*/true)
            << std::endl;
  return code;
}

int Run(const std::vector<std::string>& logs, const std::string& output) {
  RunReport report;
  for (const std::string& log : logs) {
    const absl::Status status = report.AddLog(log);
    if (!status.ok()) return Fail(2, status.message());
  }
  for (const std::string& note : report.notes()) {
    std::cerr << "agg_report: " << Shown(note) << std::endl;
  }
  const absl::StatusOr<std::string> html = report.Html();
  if (!html.ok()) return Fail(2, html.status().message());
  const absl::Status written = WriteFile(output, *html);
  if (written.ok()) return 0;
  return Fail(1, OutputError("--output", output, written).message());
}

// What the flags ask for is one of the two.
std::string Misfit(const Request& request) {
  if (request.audited.empty()) {
    if (!request.workers.empty()) return "--worker needs --audit";
    if (request.logs.empty()) return "--log is missing, or --audit";
    return request.output.empty() ? "--output is missing" : "";
  }
  return request.logs.empty() && request.output.empty()
             ? ""
             : "--audit makes no report: give no --log and no --output";
}

int Audit(const Request& request) {
  const absl::StatusOr<AuditFindings> findings =
      AuditFiles(request.audited, request.workers);
  if (!findings.ok()) return Fail(2, findings.status().message());
  for (const std::string& note : findings->notes) {
    std::cout << "note: " << Shown(note) << "\n";
  }
  for (const std::string& checked : findings->checked) {
    std::cout << "checked: " << Shown(checked) << "\n";
  }
  for (const std::string& violation : findings->violations) {
    std::cout << "violation: " << Shown(violation) << "\n";
  }
  std::cout << "violations: " << findings->violations.size() << std::endl;
  return findings->violations.empty() ? 0 : 1;
}

int Main(const std::vector<std::string>& arguments) {
  Request request;
  const absl::StatusOr<ParsedFlags> parsed =
      ParseFlags(AggReport(&request), arguments);
  if (!parsed.ok()) return Fail(2, parsed.status().message());
  if (!parsed->text.empty()) {
    std::cout << parsed->text;
    return 0;
  }
  const std::string misfit = Misfit(request);
  if (!misfit.empty()) return Fail(2, misfit);
  return request.audited.empty() ? Run(request.logs, request.output)
                                 : Audit(request);
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) {
  signal(SIGXFSZ, SIG_IGN);  // a file's limit is an error, and not the end
  return agg::Main(std::vector<std::string>(argv + 1, argv + argc));
}
