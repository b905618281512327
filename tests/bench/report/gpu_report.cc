#include "tests/bench/report/gpu_report.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace agg {

namespace {

struct KernelTarget {
  const char* name;
  const char* what;
  const char* kernel;
  const char* dtype;
  int least_rows;
  int most_rows;
  std::vector<int> needed_rows;  // measured, or nothing is met
  std::vector<Json> optimizers;
  double at_least;
};

const std::vector<KernelTarget>& KernelTargets() {
  static const auto* const targets = [] {
    const std::vector<Json> none = {Json(nullptr)};
    const std::vector<Json> all = {"sgd", "adamw", "lamb"};
    const std::vector<int> counts = {2, 4, 8, 16, 32};
    return new std::vector<KernelTarget>{
        {"gram_f32_to_16",
         "Gram of up to 16 rows, f32",
         "gram",
         "f32",
         2,
         16,
         {2, 4, 8, 16},
         none,
         0.90},
        {"gram_f32_32",
         "Gram of 32 rows, f32",
         "gram",
         "f32",
         32,
         32,
         {32},
         none,
         0.80},
        {"gram_bf16_to_8",
         "Gram of up to 8 rows, bf16",
         "gram",
         "bf16",
         2,
         8,
         {2, 4, 8},
         none,
         0.90},
        {"update_f32", "Update, f32 rows", "update", "f32", 2, 32, counts, all,
         0.90},
        {"update_bf16", "Update, bf16 rows", "update", "bf16", 2, 32, counts,
         all, 0.85}};
  }();
  return *targets;
}

bool IsFor(const KernelTarget& target, const Json& row) {
  return row["kernel"] == target.kernel && row["route"] == "hand" &&
         row["dtype"] == target.dtype && row["P"] >= target.least_rows &&
         row["P"] <= target.most_rows;
}

double ShareOf(const Json& row) { return row["share_of_copy"]["median"]; }

Json RowsOf(const Json& kernels) {
  return kernels.is_object() && kernels.contains("rows") ? kernels["rows"]
                                                         : Json::array();
}

bool HasAllRows(const KernelTarget& target, const Json& rows) {
  for (const int num_rows : target.needed_rows) {
    for (const Json& optimizer : target.optimizers) {
      bool found = false;
      for (const Json& row : rows) {
        found |= IsFor(target, row) && row["P"] == num_rows &&
                 row["optimizer"] == optimizer;
      }
      if (!found) return false;
    }
  }
  return true;
}

Json Judge(const KernelTarget& target, const Json& rows) {
  const Json* worst = nullptr;
  for (const Json& row : rows) {
    if (!IsFor(target, row)) continue;
    if (worst == nullptr || ShareOf(row) < ShareOf(*worst)) worst = &row;
  }
  Json judged = {{"name", target.name},
                 {"what", target.what},
                 {"at_least", target.at_least},
                 {"value", nullptr},
                 {"at", nullptr},
                 {"verdict", "not measured"}};
  if (worst == nullptr) return judged;
  judged["value"] = ShareOf(*worst);
  judged["at"] = {{"P", (*worst)["P"]}, {"optimizer", (*worst)["optimizer"]}};
  if (ShareOf(*worst) < target.at_least) {
    judged["verdict"] = "missed";
  } else if (HasAllRows(target, rows)) {
    judged["verdict"] = "met";
  }
  return judged;
}

Json JudgeDeviceRows(const Json& device) {
  constexpr char kName[] = "device_rows_round_over_traffic";
  constexpr double kAtMost = 1.25;
  const bool measured =
      device.is_object() && device.contains(kName) && device[kName].is_number();
  const char* verdict = !measured ? "not measured"
                        : device[kName].get<double>() <= kAtMost ? "met"
                                                                 : "missed";
  return {{"name", kName},
          {"what", "a round from rows on the device / its memory traffic"},
          {"at_most", kAtMost},
          {"value", measured ? device[kName] : Json()},
          {"at", nullptr},
          {"verdict", verdict}};
}

}  // namespace

Json TargetOfRow(const Json& row) {
  for (const KernelTarget& target : KernelTargets()) {
    if (!IsFor(target, row)) continue;
    return {{"at_least", target.at_least},
            {"verdict", ShareOf(row) < target.at_least ? "missed" : "met"}};
  }
  return nullptr;
}

Json TargetsOf(const Json& kernels, const Json& device) {
  const Json rows = RowsOf(kernels);
  Json targets = Json::array();
  for (const KernelTarget& target : KernelTargets()) {
    targets.push_back(Judge(target, rows));
  }
  targets.push_back(JudgeDeviceRows(device));
  return targets;
}

namespace {

constexpr size_t kFields = 8;

bool IsVerdict(absl::string_view word) {
  return word == "passed" || word == "failed" || word == "skipped";
}

// False if the line has another form.
bool ReadCheck(absl::string_view line, Json* check) {
  const std::vector<std::string> fields = absl::StrSplit(line, '\t');
  if (fields.size() != kFields || fields[0].empty()) return false;
  const std::string& verdict = fields[1];
  const std::string& reason = fields[7];
  if (!IsVerdict(verdict) || (verdict != "passed" && reason.empty())) {
    return false;
  }
  int numbers[5];  // seconds, limit, cases: passed, failed, skipped
  for (int i = 0; i < 5; ++i) {
    if (!absl::SimpleAtoi(fields[2 + i], &numbers[i]) || numbers[i] < 0) {
      return false;
    }
  }
  const bool has_cases = numbers[2] + numbers[3] + numbers[4] > 0;
  const Json cases = {
      {"passed", numbers[2]}, {"failed", numbers[3]}, {"skipped", numbers[4]}};
  *check = {{"name", fields[0]},
            {"verdict", verdict},
            {"seconds", numbers[0]},
            {"limit_s", numbers[1] == 0 ? Json() : Json(numbers[1])},
            {"cases", has_cases ? cases : Json()},
            {"reason", reason.empty() ? Json() : Json(reason)}};
  return true;
}

}  // namespace

absl::StatusOr<Json> ReadCheckList(absl::string_view text) {
  Json checks = Json::array();
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    Json check;
    if (!ReadCheck(line, &check)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "line ", number, " of the checks is \"", line,
          "\"; allowed: name, verdict, seconds, limit, passed, failed, "
          "skipped, reason"));
    }
    checks.push_back(check);
  }
  return checks;
}

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
Json JudgedRows(const Json& kernels) {
  Json rows = RowsOf(kernels);
  for (Json& row : rows) row["target"] = TargetOfRow(row);
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
  report["rows"] = JudgedRows(kernels);
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
