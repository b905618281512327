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

// Of a program; null if there is none.
Json FileOf(const Json& files, const char* program) {
  return files.contains(program) ? files[program] : Json();
}

void AddNotes(const Json& card, const Json& files,
              std::vector<std::string>* notes) {
  for (const auto& [program, file] : files.items()) {
    if (file.is_object() && !file["complete"]) {
      notes->push_back(absl::StrCat(program, " did not end: rows are missing"));
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
                const Json& checks, const Json& files,
                std::vector<std::string> notes) {
  AddNotes(card, files, &notes);
  Json report = {{"schema", kReportSchema}, {"verdict", VerdictOf(checks)}};
  report.update(run);
  report["host"] = host;
  report["card"] = card;
  report["checks"] = checks;
  const Json kernels = FileOf(files, "cuda_kernels");
  Take(kernels, {"copy", "bus", "fp64", "calls", "cublas"}, &report);
  report["rows"] = RowsOf(kernels);
  Take(FileOf(files, "round_gpu"), {"rounds"}, &report);
  const Json device = FileOf(files, "round_device");
  report["device_rounds"] = device.is_object() && device.contains("rounds")
                                ? device["rounds"]
                                : Json();
  report["host_way"] = device.is_object() && device.contains("host_way")
                           ? device["host_way"]
                           : Json();
  report["loopback"] = FileOf(files, "round_loopback");
  report["targets"] = TargetsOf(kernels, device);
  report["notes"] = notes;
  return report;
}

}  // namespace agg
