// The outcomes of the last rounds, for workers that ask late (P6).
#include "server/coordinator/kept_outcomes.h"

#include "server/combine/decision.h"

namespace agg {

// A bounded list: what is older is in the round log, if there is one.

void RecentRounds::Add(const RoundReport& report, const RoundResult& outcome,
                       absl::Time ended_at) {
  const PhaseDurations& took = report.durations;
  records_.push_back({outcome, ended_at, took.wait,
                      took.gram + took.compensated + took.decide + took.norms +
                          took.update + took.publish});
  if (records_.size() > kNumKept) records_.pop_front();
  tensor_orthogonality_.clear();
  for (const SegmentReport& tensor : report.decision.tensors) {
    tensor_orthogonality_.push_back(tensor.orthogonality);
  }
}

std::optional<RoundResult> RecentRounds::last_outcome() const {
  if (records_.empty()) return std::nullopt;
  return records_.back().outcome;
}

}  // namespace agg
