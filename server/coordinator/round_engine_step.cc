// The second half of a round: the optimizer's step on all shards, after the
// norms that LARS and LAMB need.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/optimizer_step.h"
#include "server/coordinator/round_engine.h"
#include "server/coordinator/trust_ratio.h"

namespace agg {

double RoundEngine::WeightDecayOf(int32_t tensor) const {
  const std::string& group = manifest_.tensors[tensor].group;
  for (const auto& [name, weight_decay] : options_.group_weight_decay) {
    if (name == group) return static_cast<double>(weight_decay);
  }
  return static_cast<double>(options_.weight_decay);
}

absl::Status RoundEngine::CollectTrust(StepPlan* step) {
  Phase phase = MakePhase(PhaseKind::kNorms);
  phase.step = *step;
  absl::StatusOr<std::vector<PhaseResult>> results = RunOnAll(phase);
  if (!results.ok()) return results.status();
  // Shards answer for their own slices. They are put in the order of the
  // manifest before they are added, so that sums do not depend on placement.
  std::vector<SliceNorms> by_slice(plan_.slices.size(), {-1, 0.0, 0.0});
  for (const PhaseResult& result : *results) {
    for (const SliceNorms& norms : result.norms) {
      if (norms.slice >= 0 &&
          norms.slice < static_cast<int32_t>(by_slice.size())) {
        by_slice[norms.slice] = norms;
      }
    }
  }
  for (size_t t = 0; t < manifest_.tensors.size(); ++t) {
    TensorNorms sum;
    for (int32_t slice : plan_.slices_of_tensor[t]) {
      if (by_slice[slice].slice != slice) {
        return absl::InternalError(
            absl::StrCat("the norms of slice ", slice, ", shard ",
                         plan_.slices[slice].shard, ", are missing"));
      }
      sum.parameter_norm_squared += by_slice[slice].parameter_norm_squared;
      sum.update_norm_squared += by_slice[slice].update_norm_squared;
    }
    step->trust.push_back(TrustRatio(
        options_.optimizer, WeightDecayOf(static_cast<int32_t>(t)), sum));
  }
  return absl::OkStatus();
}

absl::Status RoundEngine::Step(RoundReport* report) {
  const Decision& decision = report->decision;
  StepPlan step;
  step.per_tensor = decision.per_tensor;
  // The decision is about all committed rows; shards know the closed ones only.
  for (const std::vector<double>& segment : decision.coefficients) {
    for (const int row : closed_) step.coefficients.push_back(segment[row]);
  }
  step.excluded_ranks = decision.excluded_ranks;
  step.learning_rate = decision.learning_rate;
  step.step = num_steps_ + 1;  // bias correction counts applied steps only
  absl::Time mark = absl::Now();
  if (OptimizerNeedsNorms(options_.optimizer.kind)) {
    absl::Status status = CollectTrust(&step);
    Lap(&mark, &report->durations.norms);
    if (!status.ok()) return status;
  }
  Phase phase = MakePhase(PhaseKind::kUpdate);
  phase.step = std::move(step);
  const absl::StatusOr<std::vector<PhaseResult>> results = RunOnAll(phase);
  Lap(&mark, &report->durations.update);
  if (!results.ok()) return results.status();
  ++num_steps_;
  NoteNotFinite(*results, report);
  return absl::OkStatus();
}

void RoundEngine::NoteNotFinite(const std::vector<PhaseResult>& results,
                                RoundReport* report) const {
  // The first slice of all shards, so that the name does not depend on how
  // many there are.
  int32_t first = static_cast<int32_t>(plan_.slices.size());
  for (size_t shard = 0; shard < results.size(); ++shard) {
    const int32_t slice = results[shard].not_finite_slice;
    if (slice < 0 || slice >= first) continue;
    first = slice;
    report->not_finite = {manifest_.tensors[plan_.slices[slice].tensor].name,
                          static_cast<int32_t>(shard)};
  }
}

}  // namespace agg
