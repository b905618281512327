// A round as the status page, the report of a run and the traces show it.
#ifndef AGG_SERVER_STATUS_ROUND_POINT_H_
#define AGG_SERVER_STATUS_ROUND_POINT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/json.h"
#include "server/metrics/round_state.h"
#include "server/round/round_report.h"

namespace agg {

// Kept for many rounds, hence small: nothing in it grows with W^2, and lists
// hold the selected tensors only, however many there are. Undefined values are
// NaN.
struct RoundPoint {
  uint64_t epoch = 0;
  uint64_t round = 0;
  bool applied = false;
  std::string message;  // cut to 200 bytes
  CombinationNames combination;
  absl::Time finished_at;
  int64_t num_rows = 0;
  int64_t num_excluded = 0;
  int64_t examples = 0;            // of the rows that were used
  std::vector<double> numbers;     // as RoundNumbers()
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

// An element of the page's "rounds": {"seq":...,"round":...,...}. A skipped
// round has only its number, times, message, and the numbers that every round
// sets.
Json RoundPointJson(uint64_t sequence, const RoundPoint& point);

// The page's "last", the rows of one applied round in detail:
// {"round":...,"ranks":[...],...,"cosines":[[...]]}.
Json RoundDetailJson(const RoundReport& report);

// The page's "numbers", which of a round's numbers have a tile:
// [{"key":...,"label":...,"unit":...},...]; `key` as in RoundPointJson.
Json TilesJson();

// The page's "tensors": their names.
Json TensorsJson(const TensorSelection& selection);

// Rounds as a Chrome trace, for Perfetto (ui.perfetto.dev) or chrome://tracing,
// in the JSON object format of the Trace Event Format: per round a span on the
// track "coordinator" from its opening to its publication, with the phases
// inside it, and per shard a track with its compute time in each phase. Times
// are Unix time in microseconds. The round's arguments hold its numbers and
// the traceparents of its workers.
//
// Measured are the phases' lengths and the round's end; their places follow
// from the order in which they run. Where two stretches of one phase have
// another between them (deciding, before and after compensated Grams), they
// are shown as one; a shard's time is shown from the phase's start on.
std::string ChromeTrace(absl::string_view job,
                        const std::vector<RoundPoint>& rounds);

}  // namespace agg

#endif  // AGG_SERVER_STATUS_ROUND_POINT_H_
