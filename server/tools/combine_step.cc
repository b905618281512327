// G is formed in a unit in which the squares of doubles from a file do not
// overflow; results are scaled back.
#include "server/tools/combine_step.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/dcheck.h"
#include "server/base/status_macros.h"
#include "server/combine/combination_rule.h"
#include "server/combine/step_scale.h"

namespace agg {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// Rows of these exponents need no unit: the longest one's squares, and the norm
// of a combination of 2^5 of them with 2^40 elements, stay inside the ranges of
// double and of float32; the shortest one's square is far above the rules'
// threshold for a row of zeros (kZeroNormSquared), and so are sums that
// cancel.
constexpr int kLargestExponent = 100;
constexpr int kSmallestExponent = -200;
// Elements scaled at a time: a block of 32 rows fits a level-2 cache.
constexpr int64_t kBlockElements = 2048;

// A sum whose rounding errors are summed, too.
struct CompensatedSum {
  double sum = 0.0;
  double error = 0.0;

  void AddProduct(double a, double b) {
    const double product = a * b;
    const double product_error = std::fma(a, b, -product);
    const double total = sum + product;
    const double part = total - sum;
    error += ((sum - (total - part)) + (product - part)) + product_error;
    sum = total;
  }
};

// Elements [begin, end) of the finite rows, scaled to below 1, row by row.
void ScaleBlock(const NpyMatrix& matrix, const RowScales& scales, int64_t begin,
                int64_t end, std::vector<double>* block) {
  block->resize(matrix.num_rows * (end - begin));
  double* out = block->data();
  for (int i = 0; i < matrix.num_rows; ++i) {
    const absl::Span<const double> row = matrix.row(i);
    // In two factors: 2^1074 is not a double.
    const int half = scales.exponents[i] / 2;
    const double first = std::ldexp(1.0, -half);
    const double second = std::ldexp(1.0, half - scales.exponents[i]);
    for (int64_t k = begin; k < end; ++k) *out++ = row[k] * first * second;
  }
}

void AddPlain(const double* a, const double* b, int64_t n,
              CompensatedSum* sum) {
  double total = 0.0;
  for (int64_t k = 0; k < n; ++k) total += a[k] * b[k];
  sum->sum += total;
}

void AddCompensated(const double* a, const double* b, int64_t n,
                    CompensatedSum* sum) {
  for (int64_t k = 0; k < n; ++k) sum->AddProduct(a[k], b[k]);
}

}  // namespace

int ChooseUnit(bool is_float64, int smallest, int largest) {
  // As the server, which has float32 rows alone: their squares fit double.
  if (!is_float64 || smallest > largest) return 0;
  const int least = largest - kLargestExponent;   // the longest row fits
  const int most = smallest - kSmallestExponent;  // the shortest one does
  if (least <= 0 && most >= 0) return 0;
  return std::max(least, std::min(largest, most));
}

RowScales ChooseScales(const NpyMatrix& matrix) {
  RowScales scales;
  int smallest = std::numeric_limits<int>::max();
  int largest = std::numeric_limits<int>::min();
  for (int i = 0; i < matrix.num_rows; ++i) {
    double max = 0.0;
    bool finite = true;
    for (const double value : matrix.row(i)) {
      finite = finite && std::isfinite(value);
      max = std::max(max, std::abs(value));
    }
    int exponent = 0;
    if (finite && max > 0.0) {
      std::frexp(max, &exponent);
      smallest = std::min(smallest, exponent);
      largest = std::max(largest, exponent);
    }
    scales.exponents.push_back(exponent);
    scales.finite.push_back(finite);
  }
  scales.unit = ChooseUnit(matrix.is_float64, smallest, largest);
  return scales;
}

std::vector<int> RowsTakenForZero(const NpyMatrix& matrix,
                                  const GramMatrix& gram) {
  std::vector<int> found;
  for (int i = 0; i < matrix.num_rows; ++i) {
    if (!(gram(i, i) < kZeroNormSquared)) continue;  // or not finite
    for (const double value : matrix.row(i)) {
      if (value == 0.0) continue;
      found.push_back(i);
      break;
    }
  }
  return found;
}

GramMatrix ComputeGram(const NpyMatrix& matrix, const RowScales& scales,
                       GramPrecision precision) {
  const int num_rows = matrix.num_rows;
  std::vector<CompensatedSum> sums(num_rows * (num_rows + 1) / 2);
  std::vector<double> block;
  for (int64_t begin = 0; begin < matrix.num_elements;
       begin += kBlockElements) {
    const int64_t end = std::min(begin + kBlockElements, matrix.num_elements);
    const int64_t n = end - begin;
    ScaleBlock(matrix, scales, begin, end, &block);
    CompensatedSum* sum = sums.data();
    for (int i = 0; i < num_rows; ++i) {
      for (int j = i; j < num_rows; ++j, ++sum) {
        const double* a = block.data() + i * n;
        const double* b = block.data() + j * n;
        if (precision == GramPrecision::kDouble) {
          AddPlain(a, b, n, sum);
        } else {
          AddCompensated(a, b, n, sum);
        }
      }
    }
  }

  GramMatrix gram(num_rows, precision == GramPrecision::kCompensated);
  const CompensatedSum* sum = sums.data();
  for (int i = 0; i < num_rows; ++i) {
    for (int j = i; j < num_rows; ++j, ++sum) {
      const bool finite = scales.finite[i] && scales.finite[j];
      const int exponent =
          scales.exponents[i] + scales.exponents[j] - 2 * scales.unit;
      const double hi = sum->sum + sum->error;
      const double lo = (sum->sum - hi) + sum->error;
      gram.Set(i, j, finite ? std::ldexp(hi, exponent) : kNan,
               finite ? std::ldexp(lo, exponent) : kNan);
    }
  }
  return gram;
}

std::vector<double> CombineRows(const NpyMatrix& matrix,
                                absl::Span<const double> coefficients) {
  AGG_DCHECK(coefficients.size() == static_cast<size_t>(matrix.num_rows));
  std::vector<CompensatedSum> sums(matrix.num_elements);
  for (int i = 0; i < matrix.num_rows; ++i) {
    if (coefficients[i] == 0.0) continue;
    const absl::Span<const double> row = matrix.row(i);
    for (size_t k = 0; k < row.size(); ++k) {
      sums[k].AddProduct(coefficients[i], row[k]);
    }
  }
  std::vector<double> combined;
  combined.reserve(sums.size());
  for (const CompensatedSum& sum : sums) {
    // Beyond the range the error term is NaN.
    combined.push_back(std::isfinite(sum.sum) ? sum.sum + sum.error : sum.sum);
  }
  return combined;
}

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
  // One tensor is no group: its averages are the model's.
  GradientAverages& averages = state->step_scale;
  averages.variance = std::ldexp(averages.variance, 2 * exponent);
  averages.mean_squared = std::ldexp(averages.mean_squared, 2 * exponent);
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
