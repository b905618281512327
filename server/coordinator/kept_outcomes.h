// The outcomes of the last rounds, for workers that ask late (P6).
#ifndef AGG_SERVER_COORDINATOR_KEPT_OUTCOMES_H_
#define AGG_SERVER_COORDINATOR_KEPT_OUTCOMES_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <utility>

#include "server/coordinator/round_result.h"

namespace agg {

// Thread-compatible.
class KeptOutcomes {
 public:
  static constexpr int kNumKept = 16;

  // `included`: the sessions whose rows the result contains. REQUIRES: rounds
  // come in ascending order.
  void Add(RoundResult outcome, std::set<uint64_t> included) {
    rounds_.push_back({std::move(outcome), std::move(included)});
    if (rounds_.size() > kNumKept) rounds_.pop_front();
  }

  // As `session` sees it (0: as an observer); nothing if it is not kept.
  std::optional<RoundResult> Find(uint64_t round, uint64_t session) const {
    for (const Round& kept : rounds_) {
      if (kept.outcome.round != round) continue;
      RoundResult outcome = kept.outcome;
      outcome.included = session != 0 && kept.included.count(session) != 0;
      return outcome;
    }
    return std::nullopt;
  }

 private:
  struct Round {
    RoundResult outcome;
    std::set<uint64_t> included;
  };
  std::deque<Round> rounds_;  // oldest first
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_KEPT_OUTCOMES_H_
