// The outcomes of the last rounds, for workers that ask late (P6).
#ifndef AGG_SERVER_COORDINATOR_KEPT_OUTCOMES_H_
#define AGG_SERVER_COORDINATOR_KEPT_OUTCOMES_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "server/coordinator/round_result.h"

namespace agg {

// Thread-compatible.
class KeptOutcomes {
 public:
  static constexpr int kNumKept = 16;

  // `included`: the sessions whose rows the result contains, with the attempt
  // that it was. REQUIRES: rounds come in ascending order.
  void Add(RoundResult outcome, std::map<uint64_t, uint32_t> included) {
    rounds_.push_back({std::move(outcome), std::move(included)});
    if (rounds_.size() > kNumKept) rounds_.pop_front();
  }

  // As `session` sees it (0: as an observer) that asks about its `attempt`;
  // nothing if it is not kept.
  std::optional<RoundResult> Find(uint64_t round, uint64_t session,
                                  uint32_t attempt) const {
    for (const Round& kept : rounds_) {
      if (kept.outcome.round != round) continue;
      RoundResult outcome = kept.outcome;
      const auto used = kept.included.find(session);
      outcome.included = session != 0 && used != kept.included.end() &&
                         used->second == attempt;
      return outcome;
    }
    return std::nullopt;
  }

 private:
  struct Round {
    RoundResult outcome;
    std::map<uint64_t, uint32_t> included;
  };
  std::deque<Round> rounds_;  // oldest first
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_KEPT_OUTCOMES_H_
