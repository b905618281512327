// A round as the status page, the report of a run and the traces show it.
#ifndef AGG_SERVER_STATUS_ROUND_POINT_H_
#define AGG_SERVER_STATUS_ROUND_POINT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/base/json_writer.h"
#include "server/metrics/round_state.h"
#include "server/round/round_report.h"

namespace agg {

// Kept for many rounds, hence small: nothing in it grows with W^2, and not
// with the number of tensors but of selected ones. Undefined values are NaN.
struct RoundPoint {
  uint64_t epoch = 0;
  uint64_t round = 0;
  bool applied = false;
  std::string message;  // cut to 200 bytes
  CombinationNames combination;
  absl::Time finished_at;
  int64_t num_rows = 0;
  int64_t num_excluded = 0;
  int64_t examples = 0;  // of the rows that were used
  double orthogonality = 0.0;
  double gain = 0.0;
  double tau = 0.0;
  double learning_rate = 0.0;
  double loss = 0.0;
  double gradient_diversity = 0.0;
  double mean_cosine = 0.0;
  double min_cosine = 0.0;
  double effective_rank = 0.0;
  double combined_norm = 0.0;
  double noise_scale = 0.0;
  double max_delay_seconds = 0.0;  // the last commit after the first one
  int32_t last_rank = -1;          // whose commit that was; -1: no rows
  PhaseDurations durations;
  std::vector<double> tensors;  // orthogonality, as TensorSelection::tensors
  std::vector<ShardSeconds> shard_seconds;
  // Rank and traceparent of the first rows that sent one.
  std::vector<std::pair<int32_t, std::string>> traceparents;
};

// At most this many traceparents of a round are kept.
inline constexpr size_t kMaxTraceparents = 16;

RoundPoint MakeRoundPoint(const TensorSelection& selection,
                          const RoundReport& report);

// {"seq":...,"round":...,...}: one element of the page's "rounds". A skipped
// round has nothing but its numbers, times and message.
void WriteRoundPoint(uint64_t sequence, const RoundPoint& point,
                     JsonWriter* json);

// {"ranks":[...],...,"cosines":[[...]]}: the page's "last", the rows of one
// applied round in detail.
void WriteLastRound(const RoundReport& report, JsonWriter* json);

}  // namespace agg

#endif  // AGG_SERVER_STATUS_ROUND_POINT_H_
