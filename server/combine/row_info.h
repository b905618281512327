// What a worker says of its gradient row when it commits.
#ifndef AGG_SERVER_COMBINE_ROW_INFO_H_
#define AGG_SERVER_COMBINE_ROW_INFO_H_

#include <cstdint>
#include <optional>

namespace agg {

// A plain value. A loss_scale that is not finite and > 0 makes the row's
// scaled Gram non-finite, hence the row excluded.
struct RowInfo {
  int32_t rank = 0;
  int64_t examples = 1;      // >= 1; weighted_mean, unequal batches
  int32_t accumulation = 1;  // micro-gradients averaged in the row, >= 1
  // Sum over the accumulation micro-gradients of ||g||^2, of the gradients as
  // pushed (loss scale included); replaces the estimate from rows. Ignored
  // when negative or not finite.
  std::optional<double> micro_norm_squared_sum;
  double loss_scale = 1.0;  // finite, > 0: the row is this times the gradient
};

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_ROW_INFO_H_
