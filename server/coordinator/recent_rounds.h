// The rounds that have ended lately, for people and tools that ask.
#ifndef AGG_SERVER_COORDINATOR_RECENT_ROUNDS_H_
#define AGG_SERVER_COORDINATOR_RECENT_ROUNDS_H_

#include <deque>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "server/coordinator/round_result.h"
#include "server/round/round_report.h"

namespace agg {

// Rounds of all epochs of this process. Thread-compatible.
class RecentRounds {
 public:
  static constexpr int kNumKept = 256;

  void Add(const RoundReport& report, const RoundResult& outcome,
           absl::Time ended_at);

  // Oldest first, kNumKept at most.
  std::vector<RoundRecord> records() const {
    return {records_.begin(), records_.end()};
  }
  std::optional<RoundResult> last_outcome() const;
  // How orthogonal the rows of the last round were, tensor by tensor in the
  // manifest's order; empty before the first round.
  const std::vector<double>& tensor_orthogonality() const {
    return tensor_orthogonality_;
  }

 private:
  std::deque<RoundRecord> records_;
  std::vector<double> tensor_orthogonality_;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_RECENT_ROUNDS_H_
