#include "tests/bench/report/targets.h"

#include <string>
#include <vector>

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

}  // namespace agg
