// One rule on the segments of one round: chooses each segment's Gram matrix and
// state. Used for the applied rule and for shadow rules alike.
#ifndef AGG_SERVER_COMBINE_RULE_RUNNER_H_
#define AGG_SERVER_COMBINE_RULE_RUNNER_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "server/combine/combination_rule.h"
#include "server/combine/compacted_round.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/options.h"
#include "server/combine/rule_state.h"

namespace agg {

// Lives as long as one round's decision; the arguments must outlive it.
class RuleRunner {
 public:
  // *states gets one entry per segment, new ones empty; none if the rule keeps
  // no state.
  RuleRunner(const RuleOptions& options, const CompactedRound& round,
             std::vector<RuleState>* states);

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
  const std::unique_ptr<CombinationRule> rule_;
  std::vector<RuleState>& states_;
};

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_RULE_RUNNER_H_
