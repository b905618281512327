// What a round came to, and the question for it: plain values.
#ifndef AGG_SERVER_COORDINATOR_ROUND_RESULT_H_
#define AGG_SERVER_COORDINATOR_ROUND_RESULT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/ingest/frame.h"
#include "server/round/combination_names.h"

namespace agg {

enum class OutcomeKind : uint8_t { kApplied, kSkipped, kSeeded };

// What a round came to, as one session sees it (RoundOutcome of
// proto/agg.proto).
struct RoundResult {
  uint64_t epoch = 0;
  uint64_t round = 0;
  uint64_t version = 0;  // published by the round
  OutcomeKind kind = OutcomeKind::kApplied;
  bool included = false;       // whether the row asked for was used
  std::vector<int32_t> ranks;  // rows that the result contains
  // Not finite, incomplete, or outliers that are left out.
  std::vector<int32_t> excluded_ranks;
  double learning_rate = 0.0;
  double gain = 1.0;
  double tau = 0.0;
  double orthogonality = 0.0;
  bool finished = false;  // the job is over
  std::string message;
  double loss = 0.0;
  double combined_norm = 0.0;
  CombinationNames combination;  // in effect in the round
  // Places in the manifest of what no row of `ranks` had; ascending.
  std::vector<int32_t> absent_tensors;
  std::vector<int32_t> differing_ranks;  // of ReplicaGroups
};

// A question for an outcome. A session that seeds asks for its seed's.
struct OutcomeQuery {
  PushKind kind = PushKind::kGradient;
  uint64_t round = 0;    // of a gradient
  uint64_t session = 0;  // 0: an observer
  uint32_t attempt = 0;  // whose row `included` tells about
};

// Nothing: not known yet, so the asker waits.
using OutcomeAnswer = absl::StatusOr<std::optional<RoundResult>>;
inline bool IsPending(const OutcomeAnswer& answer) {
  return answer.ok() && !answer->has_value();
}

// A round that has ended, for people.
struct RoundRecord {
  RoundResult outcome;
  absl::Time ended_at;
  absl::Duration wait;  // for workers
  absl::Duration work;  // all other phases
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_ROUND_RESULT_H_
