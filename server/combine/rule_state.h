// What a combination rule remembers from one round to the next.
#ifndef AGG_SERVER_COMBINE_RULE_STATE_H_
#define AGG_SERVER_COMBINE_RULE_STATE_H_

#include <vector>

namespace agg {

// The memory of one rule in one segment: plain numbers, whose meaning only the
// rule knows (AdaCons: its sorted momentum). So any rule's state is copied,
// compared and stored in the same way. Empty before the rule's first round, and
// always for a rule without the trait kKeepsState.
//
// Every value has the unit of a gradient: it doubles when all rows double.
// Tools that compute in other units (agg_combine) rely on this.
struct RuleState {
  std::vector<double> values;
};

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_RULE_STATE_H_
