// Nearly always all tensors have all rows, and there is one step.
#include "server/shard/wave_step.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace agg {
namespace {

absl::Status Check(const StepPlan& step, size_t num_rows) {
  if (step.per_tensor && step.trust.empty() &&
      step.coefficients.size() == step.tensors.size() * num_rows &&
      std::adjacent_find(step.tensors.begin(), step.tensors.end(),
                         std::greater_equal<int32_t>()) == step.tensors.end()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the step of a wave has ", step.coefficients.size(), " coefficients and ",
      step.trust.size(), " trust ratios for ", step.tensors.size(),
      " tensors and ", num_rows,
      " rows; allowed: one coefficient for each of both, per tensor, and no "
      "trust ratio"));
}

// The step of no tensors, with the rows of `kept`.
StepPlan StepOf(const StepPlan& step, const std::vector<RoundRow>& rows,
                const std::vector<bool>& kept) {
  StepPlan part;
  part.per_tensor = true;
  part.partial = true;
  part.learning_rate = step.learning_rate;
  part.step = step.step;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!kept[i]) part.excluded_ranks.push_back(rows[i].rank);
  }
  return part;
}

}  // namespace

absl::StatusOr<SplitStep> SplitByRows(const StepPlan& step,
                                      const std::vector<RoundRow>& rows) {
  const absl::Status status = Check(step, rows.size());
  if (!status.ok()) return status;
  SplitStep result;
  std::map<std::vector<bool>, size_t> places;  // in result.steps
  for (size_t t = 0; t < step.tensors.size(); ++t) {
    const auto begin = step.coefficients.begin() + t * rows.size();
    std::vector<bool> kept(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) kept[i] = !std::isnan(begin[i]);
    if (std::find(kept.begin(), kept.end(), true) == kept.end()) {
      result.unchanged.push_back(step.tensors[t]);
      continue;
    }
    const auto place = places.emplace(kept, result.steps.size());
    if (place.second) result.steps.push_back(StepOf(step, rows, kept));
    StepPlan& part = result.steps[place.first->second];
    part.tensors.push_back(step.tensors[t]);
    for (size_t i = 0; i < rows.size(); ++i) {
      part.coefficients.push_back(kept[i] ? begin[i] : 0.0);
    }
  }
  return result;
}

}  // namespace agg
