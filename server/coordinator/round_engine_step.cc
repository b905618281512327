// The second half of a round: the optimizer's step on all shards, after the
// norms that LARS and LAMB need.
#include <algorithm>
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

void RoundEngine::FillScalars(const Decision& decision, StepPlan* step) const {
  step->per_tensor = decision.per_tensor;
  step->excluded_ranks = decision.excluded_ranks;
  step->learning_rate = decision.learning_rate;
  step->step = num_steps_ + 1;  // bias correction counts applied steps only
}

void RoundEngine::AddReplicaPlan(const Decision& decision,
                                 const std::vector<float>& trust, int ordinal,
                                 Phase* phase) const {
  const int part = (ordinal + peers_->size() - 1) % peers_->size();
  FillScalars(decision, &phase->replica_step);
  phase->replica_step.excluded_ranks.clear();  // they are about rows
  phase->replica_step.tensors = tensors_of_shard_[part];
  for (const int32_t tensor : phase->replica_step.tensors) {
    if (!trust.empty()) phase->replica_step.trust.push_back(trust[tensor]);
  }
  // Part 0 is at shard 0, its replica at shard 1.
  if (ordinal == 0 || part == 0) phase->record = next_record_;
}

absl::Status RoundEngine::PrepareUnchanged(const RoundReport& report) {
  if (!options_.replicated) return absl::OkStatus();
  return RunEach(
             PhaseKind::kUpdate,
             [&](int ordinal) {
               Phase phase = MakePhase(PhaseKind::kUpdate);
               phase.publish.version = report.version;
               phase.publish.unchanged = true;
               AddReplicaPlan(report.decision, {}, ordinal, &phase);
               return phase;
             },
             nullptr)
      .status();
}

Phase RoundEngine::StepPhase(PhaseKind kind, const Decision& decision,
                             const std::vector<float>& trust,
                             int ordinal) const {
  Phase phase = MakePhase(kind);
  StepPlan& step = phase.step;
  FillScalars(decision, &step);
  if (kind == PhaseKind::kUpdate && options_.replicated) {
    AddReplicaPlan(decision, trust, ordinal, &phase);
  } else if (kind == PhaseKind::kUpdate) {
    phase.publish.version = round_ + 1;
    phase.publishes = true;
  }
  const std::vector<int32_t>& tensors = tensors_of_shard_[ordinal];
  if (tensors.empty()) return phase;
  // The decision is about all committed rows; shards know the closed ones only.
  const auto add_segment = [&](size_t segment) {
    for (const int row : closed_) {
      step.coefficients.push_back(decision.coefficients[segment][row]);
    }
  };
  const size_t num_segments = step.per_tensor ? tensors.size() : 1;
  step.coefficients.reserve(num_segments * closed_.size());
  if (!step.per_tensor) add_segment(0);
  if (!step.per_tensor && trust.empty()) return phase;  // the same for all
  step.tensors = tensors;
  for (const int32_t tensor : tensors) {
    if (step.per_tensor) add_segment(static_cast<size_t>(tensor));
    if (!trust.empty()) step.trust.push_back(trust[tensor]);
  }
  return phase;
}

absl::StatusOr<std::vector<float>> RoundEngine::CollectTrust(
    const Decision& decision) {
  absl::StatusOr<std::vector<PhaseResult>> results = RunEach(
      PhaseKind::kNorms,
      [&](int ordinal) {
        return StepPhase(PhaseKind::kNorms, decision, {}, ordinal);
      },
      nullptr);
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
  std::vector<float> trust;
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
    trust.push_back(TrustRatio(options_.optimizer,
                               WeightDecayOf(static_cast<int32_t>(t)), sum));
  }
  return trust;
}

absl::Status RoundEngine::Step(RoundReport* report, bool* published) {
  const Decision& decision = report->decision;
  std::vector<float> trust;
  absl::Time mark = absl::Now();
  if (OptimizerNeedsNorms(options_.optimizer.kind)) {
    absl::StatusOr<std::vector<float>> collected = CollectTrust(decision);
    Lap(&mark, &report->durations.norms);
    if (!collected.ok()) return collected.status();
    trust = *std::move(collected);
  }
  const absl::StatusOr<std::vector<PhaseResult>> results = RunEach(
      PhaseKind::kUpdate,
      [&](int ordinal) {
        return StepPhase(PhaseKind::kUpdate, decision, trust, ordinal);
      },
      nullptr);
  Lap(&mark, &report->durations.update);
  if (!results.ok()) return results.status();
  if (!options_.replicated) {
    NoteNotFinite(*results, report);
    NoteNarrowing(*results, report);
  }
  // Not by a shard of an older release.
  *published =
      std::all_of(results->begin(), results->end(),
                  [](const PhaseResult& result) { return result.published; });
  return absl::OkStatus();
}

void RoundEngine::NoteNarrowing(const std::vector<PhaseResult>& results,
                                RoundReport* report) const {
  // As below. A pipelined round comes here for each of its waves.
  NarrowedVersion* const narrowed = &report->narrowed;
  int32_t first = static_cast<int32_t>(plan_.slices.size());
  const bool had_one = !narrowed->tensor.empty();
  for (size_t shard = 0; shard < results.size(); ++shard) {
    const NarrowingLoss& loss = results[shard].narrowing;
    narrowed->num_infinite += loss.num_infinite;
    narrowed->num_compared += loss.num_compared;
    narrowed->num_vanished += loss.num_vanished;
    if (had_one || loss.slice < 0 || loss.slice >= first) continue;
    first = loss.slice;
    narrowed->tensor = manifest_.tensors[plan_.slices[first].tensor].name;
    narrowed->shard = static_cast<int32_t>(shard);
  }
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
