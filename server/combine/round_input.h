// What a round's decision is made from: state so far and the rows' Grams.
#ifndef AGG_SERVER_COMBINE_ROUND_INPUT_H_
#define AGG_SERVER_COMBINE_ROUND_INPUT_H_

#include <cstdint>
#include <vector>

#include "server/combine/gram_matrix.h"
#include "server/combine/row_info.h"
#include "server/combine/rule_state.h"
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
};

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_ROUND_INPUT_H_
