// The outcomes of the last rounds, for workers that ask late (P6).
#ifndef AGG_SERVER_COORDINATOR_KEPT_OUTCOMES_H_
#define AGG_SERVER_COORDINATOR_KEPT_OUTCOMES_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/coordinator/coordinator_types.h"
#include "server/round/round_report.h"

namespace agg {

// The rounds that have ended lately, for people and tools that ask.

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

// A round's outcome and whose rows it contains: attempts by session.
struct RecordedOutcome {
  RoundResult outcome;  // `included` is each asker's own, and not recorded
  std::map<uint64_t, uint32_t> included;
};

// The last row of a rank that a version contains.
struct UsedRow {
  uint64_t session = 0;
  uint64_t round = 0;
  uint32_t attempt = 0;
};

// Thread-compatible.
class KeptOutcomes {
 public:
  static constexpr int kNumKept = 16;

  KeptOutcomes() = default;
  // Takes outcomes, the oldest first, and keeps the last kNumKept of them.
  explicit KeptOutcomes(std::vector<RecordedOutcome> rounds)
      : rounds_(std::move(rounds)) {
    while (rounds_.size() > kNumKept) rounds_.erase(rounds_.begin());
  }

  // REQUIRES: rounds come in ascending order.
  void Add(RoundResult outcome, std::map<uint64_t, uint32_t> included) {
    rounds_.push_back({std::move(outcome), std::move(included)});
    if (rounds_.size() > kNumKept) rounds_.erase(rounds_.begin());
  }

  // Returns the outcome of a round for `session` (0: an observer) that asks
  // about its `attempt`; nothing if it is not kept.
  std::optional<RoundResult> Find(uint64_t round, uint64_t session,
                                  uint32_t attempt) const {
    for (const RecordedOutcome& kept : rounds_) {
      if (kept.outcome.round != round) continue;
      RoundResult outcome = kept.outcome;
      const auto used = kept.included.find(session);
      outcome.included = session != 0 && used != kept.included.end() &&
                         used->second == attempt;
      return outcome;
    }
    return std::nullopt;
  }

  const std::vector<RecordedOutcome>& rounds() const { return rounds_; }

 private:
  std::vector<RecordedOutcome> rounds_;  // oldest first
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_KEPT_OUTCOMES_H_
