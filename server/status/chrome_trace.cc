#include "server/status/chrome_trace.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/json_writer.h"
#include "server/metrics/round_state.h"
#include "server/status/round_point.h"

namespace agg {
namespace {

constexpr int kPid = 1;
constexpr int kCoordinator = 0;  // thread ids; shards follow

void BeginEvent(absl::string_view phase, absl::string_view name, int tid,
                JsonWriter* json) {
  json->BeginObject();
  json->Key("ph").String(phase);
  json->Key("name").String(name);
  json->Key("pid").Integer(kPid);
  json->Key("tid").Integer(tid);
}

void NameTrack(absl::string_view what, absl::string_view name, int tid,
               JsonWriter* json) {
  BeginEvent("M", what, tid, json);
  json->Key("args").BeginObject().Key("name").String(name).EndObject();
  json->EndObject();
}

// Leaves the event open for arguments.
void BeginSpan(absl::string_view name, int tid, absl::Time start,
               absl::Duration length, JsonWriter* json) {
  BeginEvent("X", name, tid, json);
  json->Key("cat").String("round");
  json->Key("ts").Integer(absl::ToUnixMicros(start));
  json->Key("dur").Integer(
      std::max<int64_t>(absl::ToInt64Microseconds(length), 0));
}

void WriteArguments(const RoundPoint& round, JsonWriter* json) {
  json->Key("args").BeginObject();
  json->Key("epoch").Integer(static_cast<int64_t>(round.epoch));
  json->Key("round").Integer(static_cast<int64_t>(round.round));
  json->Key("outcome").String(round.applied ? "applied" : "skipped");
  if (!round.message.empty()) json->Key("message").String(round.message);
  json->Key("rule").String(round.combination.rule);
  json->Key("scope").String(round.combination.scope);
  json->Key("rows").Integer(round.num_rows);
  json->Key("excluded").Integer(round.num_excluded);
  json->Key("last_rank").Integer(round.last_rank);
  json->Key("last_rank_delay_seconds").Number(round.max_delay_seconds);
  json->Key("orthogonality").Number(round.orthogonality);
  json->Key("gain").Number(round.gain);
  json->Key("learning_rate").Number(round.learning_rate);
  json->Key("loss").Number(round.loss);
  json->Key("traceparents").BeginObject();
  for (const auto& [rank, traceparent] : round.traceparents) {
    json->Key(absl::StrCat(rank)).String(traceparent);
  }
  json->EndObject();
  json->EndObject();
}

struct TracePhase {
  const char* name;
  absl::Duration PhaseDurations::*length;
  double ShardSeconds::*shard;  // null: the coordinator's alone
};
// In the order in which they run.
constexpr TracePhase kPhases[] = {
    {"wait", &PhaseDurations::wait, nullptr},
    {"gram", &PhaseDurations::gram, &ShardSeconds::gram},
    {"compensated", &PhaseDurations::compensated, &ShardSeconds::compensated},
    {"decide", &PhaseDurations::decide, nullptr},
    {"norms", &PhaseDurations::norms, &ShardSeconds::norms},
    {"update", &PhaseDurations::update, &ShardSeconds::update},
    {"publish", &PhaseDurations::publish, &ShardSeconds::publish},
};

void WriteRound(const RoundPoint& round, JsonWriter* json) {
  absl::Duration total;
  for (const TracePhase& phase : kPhases)
    total += round.durations.*phase.length;
  absl::Time start = round.finished_at - total;
  BeginSpan(absl::StrCat("round ", round.round), kCoordinator, start, total,
            json);
  WriteArguments(round, json);
  json->EndObject();
  for (const TracePhase& phase : kPhases) {
    const absl::Duration length = round.durations.*phase.length;
    if (length <= absl::ZeroDuration()) continue;  // it did not run
    BeginSpan(phase.name, kCoordinator, start, length, json);
    json->EndObject();
    for (size_t i = 0; phase.shard != nullptr && i < round.shard_seconds.size();
         ++i) {
      const double seconds = round.shard_seconds[i].*phase.shard;
      BeginSpan(phase.name, static_cast<int>(i) + 1, start,
                absl::Seconds(seconds), json);
      json->EndObject();
    }
    start += length;
  }
}

}  // namespace

std::string ChromeTrace(absl::string_view job,
                        const std::vector<RoundPoint>& rounds) {
  size_t num_shards = 0;
  for (const RoundPoint& round : rounds) {
    num_shards = std::max(num_shards, round.shard_seconds.size());
  }
  JsonWriter json;
  json.BeginObject();
  json.Key("displayTimeUnit").String("ms");
  json.Key("traceEvents").BeginArray();
  NameTrack("process_name", absl::StrCat("agg_server ", job), kCoordinator,
            &json);
  NameTrack("thread_name", "coordinator", kCoordinator, &json);
  for (size_t i = 0; i < num_shards; ++i) {
    NameTrack("thread_name", absl::StrCat("shard ", i), static_cast<int>(i) + 1,
              &json);
  }
  for (const RoundPoint& round : rounds) WriteRound(round, &json);
  json.EndArray();
  json.EndObject();
  return json.Take();
}

}  // namespace agg
