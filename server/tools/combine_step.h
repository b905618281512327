// One step of the offline combination: a matrix of gradients in, what the
// server would have decided and the combined vector out.
#ifndef AGG_SERVER_TOOLS_COMBINE_STEP_H_
#define AGG_SERVER_TOOLS_COMBINE_STEP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/combine/decision.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/options.h"
#include "server/combine/statistics.h"
#include "worker_client/npz/npy.h"

namespace agg {

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

// In units of 1, where nothing else is said. Undefined values are NaN; values
// beyond double's range are infinite.
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
