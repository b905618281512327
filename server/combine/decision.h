// Everything the coordinator decides about one round, as a pure function of
// the rows' Gram matrices and explicit state: who is excluded, coefficients,
// clipping, step scale, learning rate, whether the job is done.
#ifndef AGG_SERVER_COMBINE_DECISION_H_
#define AGG_SERVER_COMBINE_DECISION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/combine/options.h"
#include "server/combine/round_input.h"

namespace agg {

// One tensor's numbers for the report. Undefined values are NaN.
struct SegmentReport {
  double orthogonality = 0.0;  // algorithms.md 1.8 (A), whatever the rule
  double kappa = 0.0;          // of the Adasum recursion (the applied one's)
  bool compensated = false;    // coefficients came from the compensated Gram
  // Guard fired: mean was used. Not set for a tensor that is all zero under
  // per_tensor scope (0 elements, a frozen layer): its mean is as good.
  bool adacons_fallback = false;
};

enum class DecisionKind : uint8_t {
  kApply,
  kSkip,              // nothing usable: the version advances unchanged
  kNeedsCompensated,  // call again with these tensors' compensated Grams
};

struct Decision {
  DecisionKind kind = DecisionKind::kApply;
  std::vector<int> compensate_tensors;  // kNeedsCompensated
  std::string skip_reason;              // kSkip
  std::vector<int32_t> excluded_ranks;  // rows with a non-finite value

  // Per segment (1 if global, one per tensor if per_tensor): P weights over
  // all of `rows` (0 for excluded ones), clipping and 1/loss_scale included.
  std::vector<std::vector<double>> coefficients;
  bool per_tensor = false;

  double scheduled_learning_rate = 0.0;
  double step_factor = 1.0;    // of the step scale
  double learning_rate = 0.0;  // scheduled * step_factor
  double gain = 1.0;           // AdaScale's, measured whatever the step scale
  double tau = 0.0;            // after this round
  double clip_factor = 1.0;    // 1 when not clipped
  double combined_norm = 0.0;  // ||w^T A|| over all tensors, after clipping
  double sigma2 = 0.0, mu2 = 0.0;            // this round's, unclipped; or NaN
  double sigma2_mean = 0.0, mu2_mean = 0.0;  // averaged
  bool finished = false;       // tau reached scale_invariant_iterations
  double orthogonality = 0.0;  // model-wise, from per-tensor Adasum results
  double gradient_diversity = 0.0;
  std::vector<SegmentReport> tensors;  // always per tensor, for the report
  bool adacons_fallback = false;       // in any segment
  bool compensated = false;            // in any segment
  CombineState next_state;
};

// `state` is the state before the round; on kSkip next_state equals it (a
// skipped round advances nothing, tau included) and coefficients are empty.
// Skipped: no rows, none of them finite, or a combined norm that is not finite
// or, after clipping, more than a float32 holds.
// kNeedsCompensated comes only where the applied rule is an Adasum with a kappa
// above the limit and plain Grams: those tensors, or all under global scope.
// The schedule is evaluated at floor(tau) before the round (algorithms.md 2.1),
// or at the version. Tensors that are all zero get finite coefficients like any
// other: Adasum 1, unit_mean 0, AdaCons the mean's.
// Deterministic; never fails for options that ValidateCombineOptions passed.
Decision Decide(const CombineOptions& options, const CombineState& state,
                const RoundInput& input);

// Rows whose pairs are reported one by one, at most: matrices grow with W^2.
inline constexpr int kMaxMatrixRows = 64;

// What a shadow rule would have done.
struct ShadowReport {
  Rule rule = Rule::kMean;
  Scope scope = Scope::kPerTensor;
  // Of the gradients, loss scale removed, 0 for excluded rows; global scope
  // only. Neither clipped nor repaired by a compensated Gram of their own.
  std::vector<double> coefficients;
  double norm = 0.0;
  double cosine = 0.0;  // with the applied result; NaN if either is 0
};

// Statistics off the critical path: computed after Update was dispatched.
// Over finite rows, loss scale removed. Undefined values are NaN.
// Cosines and eigenvalues are of the model-wise Gram matrix.
struct RoundStatistics {
  std::vector<double> row_norms;     // per row of `rows`; NaN excluded
  std::vector<double> mean_cosines;  // per row, to the other rows
  // Over the first min(W, kMaxMatrixRows) rows; NaN where one is excluded.
  std::vector<double> gram;     // packed upper triangle, row by row
  std::vector<double> cosines;  // the same; NaN, too, where a row is zero
  double mean_pairwise_cosine = 0.0;
  double min_pairwise_cosine = 0.0;
  double effective_rank = 0.0;  // exp(-sum p ln p) of eigenvalues
  // sigma2/mu2 of the averages, in examples: the critical batch size.
  double gradient_noise_scale = 0.0;
  double max_kappa = 0.0;                // of tensors and applied segments
  double coefficient_sum = 0.0;          // global, or mean over tensors
  std::vector<double> row_coefficients;  // global, or mean over tensors
  std::vector<ShadowReport> shadows;     // empty for a skipped round
};

// `decision` came from Decide(options, state, input). Shadow rules' AdaCons
// momenta advance in *next_state (decision.next_state, or where it was moved).
RoundStatistics ComputeStatistics(const CombineOptions& options,
                                  const CombineState& state,
                                  const RoundInput& input,
                                  const Decision& decision,
                                  CombineState* next_state);

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_DECISION_H_
