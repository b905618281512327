#include "tests/bench/report/gpu_report.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/bench/report/targets.h"

namespace agg {
namespace {

std::string VerdictOf(const Json& checks) {
  std::string verdict = "skipped";
  for (const Json& check : checks) {
    if (check["verdict"] == "failed") return "failed";
    if (check["verdict"] == "passed") verdict = "passed";
  }
  return verdict;
}

// Copies the members that a benchmark's file has.
void Take(const Json& file, const std::vector<const char*>& names,
          Json* report) {
  for (const char* const name : names) {
    (*report)[name] =
        file.is_object() && file.contains(name) ? file[name] : Json();
  }
}

// The rows of cuda_kernels, each with its target.
Json RowsOf(const Json& kernels) {
  Json rows = Json::array();
  if (!kernels.is_object() || !kernels.contains("rows")) return rows;
  for (Json row : kernels["rows"]) {
    row["target"] = TargetOfRow(row);
    rows.push_back(std::move(row));
  }
  return rows;
}

void AddNotes(const Json& card, const BenchFiles& files,
              std::vector<std::string>* notes) {
  for (const Json* const file :
       {&files.kernels, &files.round, &files.device, &files.loopback}) {
    if (file->is_object() && !(*file)["complete"]) {
      notes->push_back(absl::StrCat((*file)["program"].get<std::string>(),
                                    " did not end: rows are missing"));
    }
  }
  if (card.is_null() || !card["name"].is_string()) return;
  const std::string name = card["name"];
  if (!absl::StrContains(name, kTargetCard)) {
    notes->push_back(absl::StrCat("the targets are set for an ", kTargetCard,
                                  ", this is ", name));
  }
}

}  // namespace

Json MakeReport(const Json& run, const Json& host, const Json& card,
                const Json& checks, const BenchFiles& files,
                std::vector<std::string> notes) {
  AddNotes(card, files, &notes);
  Json report = {{"schema", kReportSchema}, {"verdict", VerdictOf(checks)}};
  report.update(run);
  report["host"] = host;
  report["card"] = card;
  report["checks"] = checks;
  Take(files.kernels, {"copy", "bus", "fp64", "calls", "cublas"}, &report);
  report["rows"] = RowsOf(files.kernels);
  Take(files.round, {"rounds"}, &report);
  Take(files.device, {"device_rounds"}, &report);
  report["loopback"] = files.loopback;
  report["targets"] = TargetsOf(files.kernels, files.device);
  report["notes"] = notes;
  return report;
}

}  // namespace agg
