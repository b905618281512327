// What a round's decision is made from: state so far and the rows' Grams.
#ifndef AGG_SERVER_COMBINE_ROUND_INPUT_H_
#define AGG_SERVER_COMBINE_ROUND_INPUT_H_

#include <cstdint>
#include <vector>

#include "server/combine/adacons.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/row_info.h"
#include "server/combine/step_scale.h"

namespace agg {

// State that is carried from round to round (later: checkpointed).
struct CombineState {
  std::vector<AdaconsState> adacons;  // one per segment of the applied rule
  std::vector<std::vector<AdaconsState>> shadow_adacons;  // per shadow rule
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
