// gpu_report: joins what run_gpu_checks.sh and its benchmarks have left in a
// folder into LOGS/gpu_checks.json and LOGS/gpu_checks.markdown.
//
//   gpu_report --logs=LOGS [--revision=TEXT] [--date=TEXT] [--seconds=N]
//              [--limit=N]
//
// It reads LOGS/checks.tsv, which must be there, and what else there is:
// nvidia_smi.csv, cuda_kernels.json, round_gpu.json, round_device.json,
// round_loopback.json; and the host from /proc. A program, since the host may
// have no Python.
//
// Exit codes: 0 both are written; 1 one cannot be; 2 a bad flag, or checks that
// cannot be read. A benchmark's file that cannot be read is a note in the
// report.
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "server/base/atomic_file.h"
#include "server/base/flags.h"
#include "tests/bench/report/gpu_report.h"
#include "tests/bench/report/host_facts.h"

namespace agg {
namespace {

constexpr int kDay = 86400;

struct Request {
  std::string logs;
  std::string revision = "unknown";
  std::string date = "unknown";
  int seconds = 0;
  int limit = 0;
};

Program GpuReport(Request* request) {
  Program program;
  program.name = "gpu_report";
  program.summary = "gpu_report: joins what run_gpu_checks.sh has left.";
  program.flags = {
      {"--logs", "FOLDER", "what was left, and where the report goes",
       TextValue(&request->logs, "a folder"), true},
      {"--revision", "TEXT", "what was checked", TextValue(&request->revision)},
      {"--date", "TEXT", "when", TextValue(&request->date)},
      {"--seconds", "N", "what the checks took",
       NumberValue(0, kDay, "0 to 86400", &request->seconds)},
      {"--limit", "N", "what they might have taken",
       NumberValue(0, kDay, "0 to 86400", &request->limit)},
  };
  return program;
}

int Fail(int code, absl::string_view message) {
  std::cerr << "gpu_report: " << message << std::endl;
  return code;
}

// "" for a file that cannot be read.
std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A benchmark's file; null, and a note unless it is missing, if there is none.
Json BenchOf(const std::string& logs, const std::string& program,
             std::vector<std::string>* notes) {
  const std::string text = TextOf(absl::StrCat(logs, "/", program, ".json"));
  if (text.empty()) return nullptr;
  Json file = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (file.is_object() && file.contains("complete")) return file;
  notes->push_back(
      absl::StrCat(program, ".json is not what ", program, " writes"));
  return nullptr;
}

Json ReportOf(const Request& request, const Json& checks) {
  std::vector<std::string> notes;
  Json files = Json::object();
  for (const char* const program :
       {"cuda_kernels", "round_gpu", "round_device", "round_loopback"}) {
    Json file = BenchOf(request.logs, program, &notes);
    if (!file.is_null()) files[program] = std::move(file);
  }
  Json host = HostFacts(TextOf("/proc/cpuinfo"), TextOf("/proc/meminfo"));
  host.update(SystemFacts());
  Json facts;
  for (const auto& [program, file] : files.items()) {
    if (facts.is_null() && file.contains("card")) facts = file["card"];
  }
  const Json card =
      CardOf(facts, TextOf(absl::StrCat(request.logs, "/nvidia_smi.csv")),
             TextOf("/proc/driver/nvidia/version"));
  const Json run = {{"revision", request.revision},
                    {"date", request.date},
                    {"seconds", request.seconds},
                    {"limit_s", request.limit}};
  return MakeReport(run, host, card, checks, files, notes);
}

int Write(const std::string& path, const std::string& text) {
  const absl::Status written = WriteFile(path, text);
  if (written.ok()) return 0;
  return Fail(1, OutputError("--logs", path, written).message());
}

int Run(const Request& request) {
  const std::string checks_path = absl::StrCat(request.logs, "/checks.tsv");
  const std::string text = TextOf(checks_path);
  if (text.empty()) {
    return Fail(2, absl::StrCat("no checks in ", checks_path));
  }
  const absl::StatusOr<Json> checks = ReadCheckList(text);
  if (!checks.ok()) return Fail(2, checks.status().message());
  const Json report = ReportOf(request, *checks);
  const std::string base = absl::StrCat(request.logs, "/gpu_checks");
  const std::string json = report.dump(1, ' ', /*ensure_ascii=*/false,
                                       Json::error_handler_t::replace);
  if (Write(absl::StrCat(base, ".json"), absl::StrCat(json, "\n")) != 0) {
    return 1;
  }
  return Write(absl::StrCat(base, ".markdown"), MarkdownOf(report));
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) {
  agg::Request request;
  const agg::Program program = agg::GpuReport(&request);
  const auto parsed =
      agg::ParseFlags(program, std::vector<std::string>(argv + 1, argv + argc));
  if (!parsed.ok()) return agg::Fail(2, parsed.status().message());
  if (!parsed->text.empty()) {
    std::cout << parsed->text;
    return 0;
  }
  return agg::Run(request);
}
