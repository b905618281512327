// One step of the offline combination: a matrix of gradients in, what the
// server would have decided and the combined vector out.
#ifndef AGG_SERVER_TOOLS_COMBINE_STEP_H_
#define AGG_SERVER_TOOLS_COMBINE_STEP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/combine/decision.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/options.h"
#include "server/combine/statistics.h"
#include "worker_client/npz/npy.h"

namespace agg {

// Scales for Gram matrices of double rows of any magnitude
// (server/combine/README.md 10.3): rows are scaled by powers of two, products
// and sums are exact to about 106 bits. Row i is 2^exponents[i] times values
// below 1. The Gram matrix is in units of 4^unit (ChooseUnit).
struct RowScales {
  std::vector<int> exponents;  // 0 for rows that are zero or not finite
  std::vector<bool> finite;
  int unit = 0;
};

// 0 for float32 rows, and for float64 rows whose squares, sums and combinations
// stay inside the ranges of double and float32. Else the nearest to the longest
// row's exponent with which the shortest one's square is not taken for zero; if
// there is none (rows 2^300 apart), the least that brings the longest one in.
// `smallest`, `largest`: exponents of the rows; smallest > largest: no row.
int ChooseUnit(bool is_float64, int smallest, int largest);

RowScales ChooseScales(const NpyMatrix& matrix);

enum class GramPrecision {
  kDouble,       // plain sums: exact enough where products are (float32 rows)
  kRounded,      // summed as below, then rounded to one double
  kCompensated,  // two-products and two-sums; hi + lo
};

// G_ij = <row_i, row_j> / 4^unit. Entries of rows that are not finite are NaN.
GramMatrix ComputeGram(const NpyMatrix& matrix, const RowScales& scales,
                       GramPrecision precision);

// Rows that are not zero and that rules take for rows of zeros, since they are
// too short beside the others for one unit.
std::vector<int> RowsTakenForZero(const NpyMatrix& matrix,
                                  const GramMatrix& gram);

// sum_i coefficients[i] * row_i, summed in more than double. A coefficient 0
// leaves its row out, whatever it holds.
// REQUIRES: coefficients.size() == matrix.num_rows.
std::vector<double> CombineRows(const NpyMatrix& matrix,
                                absl::Span<const double> coefficients);

// What stays the same over all steps. Lists hold one number per row, or one for
// all rows, or none (1 for every row).
struct CombineStepOptions {
  CombineOptions combine;  // validated
  std::vector<int64_t> examples;
  std::vector<int64_t> accumulation;
};

// Carried from step to step. Statistics and momenta are in units of 2^unit
// (RowScales), so that they survive gradients whose squares leave the range of
// double.
struct CombineStepState {
  int64_t step = 0;
  CombineState combine;
  int unit = 0;
};

// Numbers in units of 1, where nothing else is said. Undefined values are NaN;
// values beyond double's range are infinite.
struct CombineStepResult {
  Decision decision;  // coefficients, clip_factor and norm are clipped ones
  GramMatrix gram;    // NaN for rows that are not finite
  std::vector<int> taken_for_zero;  // rows (RowsTakenForZero)
  // Numbers without a unit and row_norms only; the rest is in units of 2^unit.
  RoundStatistics statistics;
  std::vector<double> combined;  // d; zeros for a skipped step
};

// Advances *state. INVALID_ARGUMENT if a list's length is neither 1 nor the
// number of rows.
absl::StatusOr<CombineStepResult> RunCombineStep(
    const CombineStepOptions& options, const NpyMatrix& matrix,
    CombineStepState* state);

}  // namespace agg

#endif  // AGG_SERVER_TOOLS_COMBINE_STEP_H_
