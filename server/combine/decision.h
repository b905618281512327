// Everything the coordinator decides about one round, as a pure function of
// the rows' Gram matrices and explicit state: who is excluded, coefficients,
// clipping, step scale, learning rate, whether the job is done.
#ifndef AGG_SERVER_COMBINE_DECISION_H_
#define AGG_SERVER_COMBINE_DECISION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/options.h"

namespace agg {

// What a worker said of its row when it committed.
struct RowInfo {
  int32_t rank = 0;
  int64_t examples = 1;      // >= 1; weighted_mean, unequal batches
  int32_t accumulation = 1;  // micro-gradients averaged in the row, >= 1
  // Sum over the accumulation micro-gradients of ||g||^2, of the gradients as
  // pushed (loss scale included); replaces the estimate from rows.
  std::optional<double> micro_norm_squared_sum;
  double loss_scale = 1.0;  // finite, > 0: the row is this times the gradient
};

// Sorted momentum of AdaCons for one segment; empty before its first round.
struct AdaconsState {
  std::vector<double> sorted_momentum;
};

// Averages of sigma^2 and mu^2 (algorithms.md 2.2), and tau.
struct StepScaleState {
  double variance = 0.0, variance_weight = 0.0;  // biased EMA and its weight
  double mean_squared = 0.0, mean_squared_weight = 0.0;
  int64_t num_samples = 0;
  double tau = 0.0;  // scale-invariant iterations so far
};

// State that is carried from round to round (later: checkpointed).
struct CombineState {
  std::vector<AdaconsState> adacons;  // one per segment of the applied rule
  std::vector<std::vector<AdaconsState>> shadow_adacons;  // per shadow rule
  StepScaleState step_scale;
};

// One segment's numbers for the report. Undefined values are NaN.
struct SegmentReport {
  double orthogonality = 0.0;  // algorithms.md 1.8 (A), whatever the rule
  double kappa = 0.0;          // of the Adasum recursion
  bool compensated = false;    // coefficients came from the compensated Gram
  bool adacons_fallback = false;  // guard fired: mean was used
};

enum class DecisionKind : uint8_t {
  kApply,
  kSkip,              // nothing usable: the version advances unchanged
  kNeedsCompensated,  // call again with these tensors' compensated Grams
};

// Input to Decide. Grams have one entry per tensor, P x P over `rows`.
struct RoundInput {
  int64_t version = 0;
  std::vector<RowInfo> rows;        // rank order
  std::vector<GramMatrix> tensors;  // as pushed; compensated where asked for
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
  double sigma2 = 0.0, mu2 = 0.0;          // this round's, unclipped; or NaN
  double sigma2_mean = 0.0, mu2_mean = 0.0;  // averaged
  bool finished = false;  // tau reached scale_invariant_iterations
  double orthogonality = 0.0;  // model-wise, from per-tensor Adasum results
  double gradient_diversity = 0.0;
  std::vector<SegmentReport> tensors;  // always per tensor, for the report
  bool adacons_fallback = false;       // in any segment
  bool compensated = false;            // in any segment
  CombineState next_state;
};

// `state` is the state before the round; on kSkip next_state equals it except
// for tau of jobs that count rounds (a skipped round advances nothing).
// Deterministic; never fails for options that ValidateCombineOptions passed.
Decision Decide(const CombineOptions& options, const CombineState& state,
                const RoundInput& input);

// What a shadow rule would have done.
struct ShadowReport {
  Rule rule = Rule::kMean;
  Scope scope = Scope::kPerTensor;
  std::vector<double> coefficients;  // global scope only
  double norm = 0.0;
  double cosine = 0.0;  // with the applied result; NaN if either is 0
};

// Statistics off the critical path: computed after Update was dispatched.
// Over finite rows, loss scale removed. Undefined values are NaN.
struct RoundStatistics {
  std::vector<double> row_norms;          // per row of `rows`; NaN excluded
  std::vector<double> mean_cosines;       // per row, to the other rows
  double mean_pairwise_cosine = 0.0;
  double min_pairwise_cosine = 0.0;
  double effective_rank = 0.0;            // exp(-sum p ln p) of eigenvalues
  double gradient_noise_scale = 0.0;      // in examples
  double max_kappa = 0.0;
  double coefficient_sum = 0.0;           // global, or mean over tensors
  std::vector<double> row_coefficients;   // global, or mean over tensors
  std::vector<ShadowReport> shadows;
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
