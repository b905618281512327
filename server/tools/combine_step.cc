// G is formed in a unit in which the squares of doubles from a file do not
// overflow; results are scaled back.
#include "server/tools/combine_step.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/status_macros.h"
#include "server/combine/combination_rule.h"
#include "server/combine/step_scale.h"
#include "server/tools/exact_gram.h"

namespace agg {
namespace {

// The options in units of 2^unit. Clipping comes afterwards then, in units
// of 1.
CombineOptions InUnits(CombineOptions options, int unit) {
  if (unit == 0) return options;  // exactly what the server does
  options.clip_norm = 0.0;
  options.rule.adacons.epsilon =
      std::max(std::ldexp(options.rule.adacons.epsilon, -unit), DBL_MIN);
  options.step_scale.variance_floor =
      std::ldexp(options.step_scale.variance_floor, -2 * unit);
  return options;
}

// Multiplies the state's gradients by 2^exponent.
void ScaleState(int exponent, CombineState* state) {
  if (exponent == 0) return;
  for (RuleState& rule : state->rule) {
    for (double& value : rule.values) value = std::ldexp(value, exponent);
  }
  StepScaleState& scale = state->step_scale;
  scale.variance = std::ldexp(scale.variance, 2 * exponent);
  scale.mean_squared = std::ldexp(scale.mean_squared, 2 * exponent);
}

absl::StatusOr<std::vector<int64_t>> PerRow(absl::string_view name,
                                            const std::vector<int64_t>& list,
                                            int num_rows) {
  if (list.empty()) return std::vector<int64_t>(num_rows, 1);
  if (list.size() == 1) return std::vector<int64_t>(num_rows, list[0]);
  if (list.size() == static_cast<size_t>(num_rows)) return list;
  return absl::InvalidArgumentError(
      absl::StrCat("--", name, " has ", list.size(), " numbers for ", num_rows,
                   " rows; must be one, or one per row"));
}

absl::StatusOr<std::vector<RowInfo>> MakeRows(const CombineStepOptions& options,
                                              int num_rows) {
  AGG_ASSIGN_OR_RETURN(const auto examples,
                       PerRow("examples", options.examples, num_rows));
  AGG_ASSIGN_OR_RETURN(const auto accumulation,
                       PerRow("accumulation", options.accumulation, num_rows));
  std::vector<RowInfo> rows(num_rows);
  for (int i = 0; i < num_rows; ++i) {
    rows[i].rank = i;
    rows[i].examples = examples[i];
    rows[i].accumulation = static_cast<int32_t>(accumulation[i]);
  }
  return rows;
}

// The decision in units of 1, and clipped.
void FromUnits(const CombineOptions& options, int unit, Decision* decision) {
  for (double* value : {&decision->sigma2, &decision->mu2,
                        &decision->sigma2_mean, &decision->mu2_mean}) {
    *value = std::ldexp(*value, 2 * unit);
  }
  if (unit == 0) return;
  if (decision->kind != DecisionKind::kApply) return;
  const bool has_unit = !decision->of_unit_rows;
  const double norm = std::ldexp(decision->combined_norm, has_unit ? unit : 0);
  decision->clip_factor = ClipFactor(norm, options.clip_norm);
  decision->combined_norm = norm * decision->clip_factor;
  for (double& coefficient : decision->coefficients[0]) {
    coefficient =
        std::ldexp(coefficient * decision->clip_factor, has_unit ? 0 : -unit);
  }
}

// Float32 products are exact in double; others need the compensated sum.
GramPrecision PlainPrecision(const NpyMatrix& matrix) {
  return matrix.is_float64 ? GramPrecision::kRounded : GramPrecision::kDouble;
}

GramMatrix GramInUnitsOfOne(const GramMatrix& scaled, int unit) {
  GramMatrix gram(scaled.num_rows());
  for (int i = 0; i < scaled.num_rows(); ++i) {
    for (int j = i; j < scaled.num_rows(); ++j) {
      gram.Set(i, j, std::ldexp(scaled(i, j), 2 * unit));
    }
  }
  return gram;
}

}  // namespace

absl::StatusOr<CombineStepResult> RunCombineStep(
    const CombineStepOptions& options, const NpyMatrix& matrix,
    CombineStepState* state) {
  AGG_ASSIGN_OR_RETURN(std::vector<RowInfo> rows,
                       MakeRows(options, matrix.num_rows));
  RoundInput input;
  input.version = state->step;
  input.rows = std::move(rows);

  const RowScales scales = ChooseScales(matrix);
  ScaleState(state->unit - scales.unit, &state->combine);
  state->unit = scales.unit;
  const CombineOptions combine = InUnits(options.combine, scales.unit);
  input.tensors.push_back(ComputeGram(matrix, scales, PlainPrecision(matrix)));

  CombineStepResult result;
  result.taken_for_zero = RowsTakenForZero(matrix, input.tensors[0]);
  result.gram = GramInUnitsOfOne(input.tensors[0], scales.unit);
  result.decision = Decide(combine, state->combine, input);
  if (result.decision.kind == DecisionKind::kNeedsCompensated) {
    input.tensors[0] = ComputeGram(matrix, scales, GramPrecision::kCompensated);
    result.decision = Decide(combine, state->combine, input);
  }
  CombineState next = result.decision.next_state;
  result.statistics =
      ComputeStatistics(combine, state->combine, input, result.decision, &next);
  for (double& norm : result.statistics.row_norms) {
    norm = std::ldexp(norm, scales.unit);
  }
  state->combine = std::move(next);
  ++state->step;

  FromUnits(options.combine, scales.unit, &result.decision);
  if (result.decision.kind == DecisionKind::kApply) {
    result.combined = CombineRows(matrix, result.decision.coefficients[0]);
  } else {
    result.decision.coefficients.assign(
        1, std::vector<double>(matrix.num_rows, 0.0));
    result.combined.assign(matrix.num_elements, 0.0);
  }
  return result;
}

}  // namespace agg
