// A reduction that is made, as the job's facts keep it (P51): a plain value.
#ifndef AGG_SERVER_COORDINATOR_KEPT_REDUCTION_H_
#define AGG_SERVER_COORDINATOR_KEPT_REDUCTION_H_

#include <cstdint>
#include <string>
#include <vector>

namespace agg {

// Which reduction it is. `history`: of the job (RoundReport::history), so that
// what a rewind undoes is not taken for what is done after it.
struct ReductionName {
  uint64_t history = 0;
  uint64_t version = 0;
  uint32_t number = 0;  // of those at the version

  friend bool operator==(const ReductionName& a, const ReductionName& b) {
    return a.history == b.history && a.version == b.version &&
           a.number == b.number;
  }
};

struct KeptReduction {
  ReductionName name;
  std::string what;
  std::vector<double> sums;
  // As ReduceReply of proto/reduction.proto has them.
  std::vector<int32_t> ranks;
  std::vector<int32_t> left_out;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_KEPT_REDUCTION_H_
