// What is worth knowing of a round besides its decision: cosines, ranks, norms
// and what shadow rules would have done. Apart from decision.h, since nothing
// waits for it: it is computed while the shards already update.
#ifndef AGG_SERVER_COMBINE_STATISTICS_H_
#define AGG_SERVER_COMBINE_STATISTICS_H_

#include <cstddef>
#include <vector>

#include "server/combine/combination_rule.h"
#include "server/combine/compacted_round.h"
#include "server/combine/decision.h"
#include "server/combine/options.h"
#include "server/combine/rule_table.h"

namespace agg {

// Rows whose pairs are reported one by one, at most: matrices grow with W^2.
inline constexpr int kMaxMatrixRows = 64;
// Entries of the tensors' Gram matrices of one round, at most.
inline constexpr size_t kMaxTensorGramEntries = size_t{1} << 17;

// What a shadow rule would have done.
struct ShadowReport {
  const Rule* rule = &DefaultRule();  // never null
  Scope scope = Scope::kPerTensor;
  // One per row, of gradients without their loss scale; 0 for excluded rows.
  // Empty under per_tensor scope, and for an external rule without an answer,
  // whose numbers are NaN. Neither clipped nor repaired by a compensated
  // Gram of their own.
  std::vector<double> coefficients;
  double norm = 0.0;
  double cosine = 0.0;  // with the applied result; NaN if either is 0
};

// Statistics off the critical path: computed after Update was dispatched.
// Over finite rows, loss scale removed. Undefined values are NaN.
// Cosines and eigenvalues are of the model-wise Gram matrix.
struct RoundStatistics {
  std::vector<double> row_norms;     // per row of `rows`; NaN: not finite
  std::vector<double> mean_cosines;  // per row, to the other rows
  // Matrices over the first min(W, kMaxMatrixRows) rows; NaN where one is
  // excluded.
  std::vector<double> gram;     // packed upper triangle, row by row
  std::vector<double> cosines;  // in the same order; NaN for zero rows, too
  // TensorGrams, where the round log wants them; else empty.
  std::vector<double> tensor_grams;
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

// `decision` came from Decide(options, state, input). The state of shadow rules
// advances in *next_state (decision.next_state, or where it was moved).
// Deterministic; never fails.
RoundStatistics ComputeStatistics(const CombineOptions& options,
                                  const CombineState& state,
                                  const RoundInput& input,
                                  const Decision& decision,
                                  CombineState* next_state);

// Computes the statistics of rows that are compacted already. `rule_before` is
// the applied rule's state before the round. *shadow_rules, the state of the
// shadow rules, advances (CombineState::shadow_rules).
RoundStatistics ComputeStatistics(
    const CombineOptions& options, const std::vector<RuleState>& rule_before,
    const CompactedRound& round, const Decision& decision,
    std::vector<std::vector<RuleState>>* shadow_rules);

// Returns each tensor's Gram matrix as RoundStatistics::gram has the sum, one
// behind the other. They have as many of the first kMaxMatrixRows rows as make
// kMaxTensorGramEntries entries at most. Empty if no row is kept, or if not
// even one entry for each tensor fits.
std::vector<double> TensorGrams(const CompactedRound& round);

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_STATISTICS_H_
