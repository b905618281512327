// Everything the coordinator decides about one round, as a pure function of
// the rows' Gram matrices and explicit state: who is excluded, coefficients,
// clipping, step scale, learning rate, whether the job is done.
#ifndef AGG_SERVER_COMBINE_DECISION_H_
#define AGG_SERVER_COMBINE_DECISION_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/combine/adasum.h"
#include "server/combine/combination_rule.h"
#include "server/combine/compacted_round.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/options.h"
#include "server/combine/step_scale.h"

namespace agg {

// State that is carried from round to round (later: checkpointed). A rule that
// keeps none has no entries.
struct CombineState {
  std::vector<RuleState> rule;  // the applied rule's, one per segment
  std::vector<std::vector<RuleState>> shadow_rules;  // each rule's, the same
  StepScaleState step_scale;
};

// Input to Decide. Grams have one entry per tensor, P x P over `rows`.
struct RoundInput {
  int64_t version = 0;
  std::vector<RowInfo> rows;        // rank order
  std::vector<GramMatrix> tensors;  // as pushed; compensated where asked for
  std::vector<int32_t> group_of_tensor;  // CompactedRound's
};

// One tensor's numbers for the report. Undefined values are NaN.
struct SegmentReport {
  // server/combine/README.md 3.6, whatever the rule.
  double orthogonality = 0.0;
  // Root of the mean squared norm of the kept rows, loss scale removed.
  double row_norm = 0.0;
  // Cancellation in plain Adasum's recursion, or in the applied rule's own if
  // that has one and works per tensor.
  double kappa = 0.0;
  bool compensated = false;  // coefficients came from the compensated Gram
  // The rule's guard fired: the mean was used. Not set for a tensor that is all
  // zero under per_tensor scope (0 elements, a frozen layer): its mean is as
  // good. Named after the one rule that has a guard, as its metric is.
  bool adacons_fallback = false;
  // AdaScale's gain of the tensor's group, where gains are per group and scale
  // the step.
  double gain = std::numeric_limits<double>::quiet_NaN();
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
  // Rows with a value that is not finite, and outliers if they are excluded.
  std::vector<int32_t> excluded_ranks;
  OutlierReport outliers;
  // Groups of ranks whose rows are the same (EqualRows).
  std::vector<std::vector<int32_t>> equal_ranks;
  // Ranks whose micro_norm_squared_sum was not used (NoiseEstimate).
  std::vector<int32_t> small_sum_ranks;
  // Ranks whose sum was not used since gains are per group.
  std::vector<int32_t> unused_sum_ranks;

  // Coefficients per segment (1 if global, one per tensor if per_tensor): P
  // weights over all of `rows` (0 for excluded ones), clipping and 1/loss_scale
  // included.
  std::vector<std::vector<double>> coefficients;
  bool per_tensor = false;

  double scheduled_learning_rate = 0.0;
  double step_factor = 1.0;    // of the step scale
  double learning_rate = 0.0;  // scheduled * step_factor
  double gain = 1.0;           // AdaScale's, measured whatever the step scale
  // StepScaleResult's.
  double next_gain = std::numeric_limits<double>::quiet_NaN();
  // Gain, and rate in the place of learning_rate, of each of
  // StepScaleOptions::groups, where gains are per group and scale the step.
  std::vector<double> group_gains, group_rates;
  double tau = 0.0;                // after this round
  double clip_factor = 1.0;        // 1 when not clipped
  double combined_norm = 0.0;      // ||w^T A|| over all tensors, after clipping
  double sigma2 = 0.0, mu2 = 0.0;  // this round's, unclipped; or NaN
  double sigma2_mean = 0.0, mu2_mean = 0.0;  // averaged
  bool finished = false;       // tau reached scale_invariant_iterations
  double orthogonality = 0.0;  // model-wise, from per-tensor Adasum results
  // DecideCoefficients has left orthogonality, and kappa where the rule itself
  // measures none, to ReportOrthogonality.
  bool lacks_orthogonality = false;
  double gradient_diversity = 0.0;
  std::vector<SegmentReport> tensors;  // always per tensor, for the report
  bool adacons_fallback = false;       // in any segment
  bool compensated = false;            // in any segment
  // Whether, in any segment, unit vectors were combined, so that the result
  // does not grow with the gradients.
  bool of_unit_rows = false;
  bool short_of_rows = false;  // in any segment: RuleResult::short_of_rows
  // Why the fallback of an external rule was applied; "": it was not.
  std::string external_fallback;
  CombineState next_state;
};

// `state` is the state before the round; on kSkip next_state equals it (a
// skipped round advances nothing, tau included) and coefficients are empty.
// Skipped: no rows, none of them finite, or a combined norm that is not finite
// or, after clipping, more than a float32 holds.
// kNeedsCompensated comes only where the applied rule measures a cancellation
// above its limit on plain Grams: those tensors, or all under global scope.
// The schedule is evaluated at floor(tau) before the round
// (server/combine/README.md 5.1), or at the version. Tensors that are all zero
// get finite coefficients like any other; which, is each rule's policy
// (server/combine/README.md 9). Deterministic; never fails for options that
// ValidateCombineOptions passed.
Decision Decide(const CombineOptions& options, const CombineState& state,
                const RoundInput& input);

// The part of Decide that shards wait for, of rows that are compacted already:
// all but plain Adasum's numbers of each tensor, unless the applied rule is
// plain Adasum per tensor and has them anyway.
Decision DecideCoefficients(const CombineOptions& options,
                            const CombineState& state, int64_t version,
                            const CompactedRound& round);

// The answer of the rule's process about the round; null: the rule is not
// external, or there is none.
const ExternalAnswer* AnswerTo(const RuleOptions& options,
                               const CompactedRound& round);

// One rule on the segments of one round, for the applied rule and for shadow
// rules alike: chooses each segment's Gram matrix and state. In place of an
// external rule without an answer its fallback runs. A segment is a
// tensor under the scope per_tensor, and the sum of all tensors under the scope
// global. Lives as long as one round's decision; the arguments must outlive it.
class RuleRunner {
 public:
  // *states gets one entry per segment, new ones empty; none if the rule keeps
  // no state.
  RuleRunner(const RuleOptions& options, const CompactedRound& round,
             std::vector<RuleState>* states);

  // The rule that runs: that of the options, or its fallback.
  const Rule& rule() const { return line_; }
  // Tensors under per_tensor scope, else 1.
  size_t num_segments() const;
  const GramMatrix& gram(size_t segment) const;

  // Appends the segment's coefficients over the round's kept rows to *weights
  // and advances its state.
  RuleResult Run(size_t segment, std::vector<std::vector<double>>* weights);

  // Whether a result of the segment needs its Gram matrix again, compensated.
  bool NeedsCompensated(size_t segment, const RuleResult& result) const;

 private:
  const RuleOptions& options_;
  const CompactedRound& round_;
  const bool per_tensor_;
  const ExternalAnswer* const answer_;  // null: none
  const Rule& line_;
  const std::unique_ptr<CombinationRule> rule_;
  std::vector<RuleState>& states_;
};

// Orthogonality and kappa of each tensor: what plain Adasum would make of it,
// whatever the rule. No coefficient depends on it, so that it may be computed
// while the shards already update, by several threads: they share the first of
// these calls, and one adds up the second's sums in a fixed order.
//
// Plain Adasum of the tensors `begin` to `begin` + results.size() - 1.
// O(P^2) each. Thread-safe for different results.
void SolvePlainAdasum(const CompactedRound& round, size_t begin,
                      absl::Span<AdasumResult> results);

// Writes what the results of all tensors say into *decision, which is then as
// Decide makes it. Does nothing unless decision->lacks_orthogonality.
// REQUIRES: `round` and `rule` are those of the decision.
void ReportOrthogonality(const RuleOptions& rule, const CompactedRound& round,
                         absl::Span<const AdasumResult> results,
                         Decision* decision);

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_DECISION_H_
