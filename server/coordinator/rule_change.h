// Another way of combining, for a job that is running: what may change, and
// which part of the combination's state survives the change. Pure.
#ifndef AGG_SERVER_COORDINATOR_RULE_CHANGE_H_
#define AGG_SERVER_COORDINATOR_RULE_CHANGE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/combine/options.h"
#include "server/combine/round_input.h"
#include "server/round/combination_names.h"

namespace agg {

// What is not set stays as it is; `scope` beside another rule than before
// becomes that rule's default, and so does each option of a rule beside one
// that takes it where the one before did not. So nothing is remembered of a
// rule that is no longer in effect, which a restart would forget.
struct RuleChange {
  std::optional<std::string> rule;
  std::optional<std::string> scope;
  std::optional<std::string> step_scale;
  std::optional<bool> force_step_scale;
  std::optional<double> learning_rate;  // the schedule's
  std::optional<double> adacons_beta;
  std::optional<std::string> adacons_rescale;
  std::optional<int32_t> krum_byzantine_workers;
  std::optional<int32_t> krum_selected;
};

// The answer to an accepted change.
struct RuleChangeResult {
  CombinationNames before;  // of the open round
  CombinationNames after;
  uint64_t first_round = 0;  // the first one that is combined in the new way
};

// INVALID_ARGUMENT as ValidateCombineOptions, and for an empty change, unknown
// names, and options of a rule without that rule. `workers`: the job's, for
// defaults.
absl::StatusOr<CombineOptions> ChangedCombination(const CombineOptions& before,
                                                  const RuleChange& change,
                                                  int32_t workers);

CombinationNames NamesOf(const CombineOptions& options);

// Makes `state`, left by rounds with `before`, that of a round with `after`:
//  - The rule's state (AdaCons' momentum) starts anew unless rule, scope and
//    AdaCons' options are the same: it belongs to this very rule.
//  - The averages of sigma2 and mu2, and tau, go on: they measure gradients and
//    progress, whatever the rule. Where the schedule is evaluated may move, as
//    adascale and adamscale do so at tau, the others at the version.
//  - Shadow rules do not change, and neither does their state.
void CarryState(const CombineOptions& before, const CombineOptions& after,
                CombineState* state);

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_RULE_CHANGE_H_
