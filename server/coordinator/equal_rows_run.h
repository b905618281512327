// When a round's message says that workers' rows are equal.
#ifndef AGG_SERVER_COORDINATOR_EQUAL_ROWS_RUN_H_
#define AGG_SERVER_COORDINATOR_EQUAL_ROWS_RUN_H_

#include <cstdint>
#include <vector>

#include "server/round/round_report.h"

namespace agg {

// One round with equal rows may be chance, or a first step from the same
// batch; so many in a row are not.
inline constexpr int kEqualRowsRounds = 3;

// Thread-compatible.
class EqualRowsRun {
 public:
  // Whether this applied round's message is to name its equal rows: the
  // kEqualRowsRounds-th one in a row with the same ranks, and once for these.
  bool Note(const RoundReport& report);

 private:
  std::vector<std::vector<int32_t>> ranks_;  // of the last round
  std::vector<std::vector<int32_t>> said_;
  int length_ = 0;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_EQUAL_ROWS_RUN_H_
