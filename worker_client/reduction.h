// What a small reduction beside the model gives (P51): a plain value.
#ifndef AGG_WORKER_CLIENT_REDUCTION_H_
#define AGG_WORKER_CLIENT_REDUCTION_H_

#include <vector>

namespace agg {

struct Reduction {
  std::vector<double> sums;  // in the order of the values that were given
  std::vector<int> ranks;    // whose values are in them, ascending
  // Workers that were in the job and are not in them: they waited for a round
  // that one in `ranks` had not pushed to yet, or take part from a later one.
  std::vector<int> left_out;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_REDUCTION_H_
