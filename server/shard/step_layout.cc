// A step names the shard's own tensors alone, so that their number does not
// grow with the job's.
#include "server/shard/step_layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/base/process_memory.h"
#include "server/base/status_macros.h"

namespace agg {
namespace {

absl::Status CheckSizes(const StepPlan& step, size_t num_rows,
                        size_t num_tensors) {
  const size_t segments = step.per_tensor ? num_tensors : 1;
  if (step.coefficients.size() == segments * num_rows &&
      (step.trust.empty() || step.trust.size() == num_tensors)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "step has ", step.coefficients.size(), " coefficients and ",
      step.trust.size(), " trust ratios for ", segments, " segments, ",
      num_rows, " rows and ", num_tensors, " tensors"));
}

// Before the group's own factor.
absl::StatusOr<double> RateOf(const StepPlan& step, const GroupOptions& group) {
  if (step.group_rates.empty()) return step.learning_rate;
  const size_t place = static_cast<size_t>(group.place);
  if (place < step.group_rates.size()) return step.group_rates[place];
  return absl::InvalidArgumentError(absl::StrCat(
      "step has learning rates of ", step.group_rates.size(),
      " groups; allowed: none, or one for each group of the configuration and "
      "one for tensors in none, among them ",
      group.place, ", \"", group.name, "\""));
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> PlacesIn(const StepPlan& step,
                                              const ShardLayout& layout,
                                              size_t num_rows) {
  const size_t num_tensors = layout.manifest.tensors.size();
  std::vector<int32_t> listed = step.tensors;
  if (listed.empty() && !step.partial) {
    listed.resize(num_tensors);
    std::iota(listed.begin(), listed.end(), 0);
  }
  AGG_RETURN_IF_ERROR(CheckSizes(step, num_rows, listed.size()));
  std::vector<int32_t> places(num_tensors, -1);
  for (size_t i = 0; i < listed.size(); ++i) {
    if (listed[i] >= 0 && static_cast<size_t>(listed[i]) < num_tensors) {
      places[listed[i]] = static_cast<int32_t>(i);
    }
  }
  for (const int32_t slice : layout.slices) {
    const int32_t tensor = layout.plan.slices[slice].tensor;
    if (places[tensor] < 0 && !step.partial) {
      return absl::InvalidArgumentError(absl::StrCat(
          "step lacks tensor ", tensor, ", which this shard has slices of"));
    }
  }
  return places;
}

absl::StatusOr<std::vector<GroupOptions>> GroupsOf(const ShardOptions& options,
                                                   const Manifest& manifest) {
  std::vector<GroupOptions> groups;
  for (const TensorSpec& tensor : manifest.tensors) {
    GroupOptions group;
    group.weight_decay = options.weight_decay;
    if (!tensor.group.empty()) {
      const auto found = std::find_if(
          options.groups.begin(), options.groups.end(),
          [&](const GroupOptions& g) { return g.name == tensor.group; });
      if (found == options.groups.end()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "tensor \"", tensor.name, "\" is in group \"", tensor.group,
            "\"; allowed: a name in the config's `groups`, or none"));
      }
      group = *found;
      group.place = static_cast<int32_t>(found - options.groups.begin()) + 1;
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

std::vector<int32_t> StepSlices(const StepPlan& step,
                                const ShardLayout& layout) {
  std::vector<int32_t> positions;
  for (size_t i = 0; i < layout.slices.size(); ++i) {
    const int32_t tensor = layout.plan.slices[layout.slices[i]].tensor;
    if (step.partial &&
        !std::binary_search(step.tensors.begin(), step.tensors.end(), tensor)) {
      continue;
    }
    positions.push_back(static_cast<int32_t>(i));
  }
  return positions;
}

absl::StatusOr<std::vector<UpdateRange>> StepRanges(
    const StepPlan& step, const ShardLayout& layout,
    const std::vector<GroupOptions>& group_of_tensor, size_t num_rows,
    size_t num_kept, absl::Span<const double> coefficients) {
  AGG_ASSIGN_OR_RETURN(const std::vector<int32_t> places,
                       PlacesIn(step, layout, num_rows));
  std::vector<UpdateRange> ranges;
  for (const int32_t i : StepSlices(step, layout)) {
    const int32_t tensor = layout.plan.slices[layout.slices[i]].tensor;
    const int32_t place = places[tensor];
    const GroupOptions& group = group_of_tensor[tensor];
    UpdateRange range;
    range.range = layout.ranges[i];
    range.coefficients =
        coefficients.subspan(step.per_tensor ? place * num_kept : 0, num_kept);
    AGG_ASSIGN_OR_RETURN(const double rate, RateOf(step, group));
    range.learning_rate = static_cast<float>(
        rate * static_cast<double>(group.learning_rate_factor));
    range.weight_decay = group.weight_decay;
    range.trust = step.trust.empty() ? 1.0f : step.trust[place];
    ranges.push_back(range);
  }
  return ranges;
}

StepPlan WithoutRows(const StepPlan& step) {
  StepPlan without;
  without.tensors = step.tensors;
  without.learning_rate = step.learning_rate;
  without.group_rates = step.group_rates;
  without.step = step.step;
  without.renews_state = step.renews_state;
  without.trust = step.trust;
  return without;
}

absl::Status RenewState(const OptimizerOptions& optimizer, Backend* backend,
                        Buffer* state0, Buffer* state1) {
  std::vector<float> values;
  for (Buffer* const state : {state0, state1}) {
    if (state == nullptr) continue;
    const int64_t num_values = state->num_bytes() / 4;
    AGG_RETURN_IF_ERROR(TryResize(num_values, &values));
    values.assign(values.size(),
                  state == state0 ? InitialState0(optimizer) : 0.0f);
    AGG_RETURN_IF_ERROR(backend->Write(values, state));
  }
  return absl::OkStatus();
}

std::vector<size_t> KeptRows(const StepPlan& step,
                             const std::vector<RoundRow>& rows) {
  std::vector<size_t> kept;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (std::count(step.excluded_ranks.begin(), step.excluded_ranks.end(),
                   rows[i].rank) == 0) {
      kept.push_back(i);
    }
  }
  return kept;
}

}  // namespace agg
