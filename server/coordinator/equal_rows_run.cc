#include "server/coordinator/equal_rows_run.h"

namespace agg {

bool EqualRowsRun::Note(const RoundReport& report) {
  if (!report.applied) return false;
  const std::vector<std::vector<int32_t>>& ranks = report.decision.equal_ranks;
  length_ = ranks == ranks_ ? length_ + 1 : 1;
  ranks_ = ranks;
  if (ranks.empty() || length_ < kEqualRowsRounds || ranks == said_) {
    return false;
  }
  said_ = ranks;
  return true;
}

}  // namespace agg
