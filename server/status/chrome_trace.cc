// Places the measured phases of each round on a time axis, one event per span.
#include "server/status/chrome_trace.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "server/base/json.h"
#include "server/round/round_numbers.h"
#include "server/round/timed_phases.h"
#include "server/status/round_point.h"

namespace agg {
namespace {

constexpr int kPid = 1;
constexpr int kCoordinator = 0;  // thread ids; shards follow

Json Event(absl::string_view phase, absl::string_view name, int tid) {
  return {{"ph", std::string(phase)},
          {"name", std::string(name)},
          {"pid", kPid},
          {"tid", tid}};
}

Json TrackName(absl::string_view what, absl::string_view name, int tid) {
  Json event = Event("M", what, tid);
  event["args"]["name"] = std::string(name);
  return event;
}

Json Span(absl::string_view name, int tid, absl::Time start,
          absl::Duration length) {
  Json event = Event("X", name, tid);
  event["cat"] = "round";
  event["ts"] = absl::ToUnixMicros(start);
  event["dur"] = std::max<int64_t>(absl::ToInt64Microseconds(length), 0);
  return event;
}

Json ArgumentsJson(const RoundPoint& round) {
  Json json;
  json["epoch"] = round.epoch;
  json["round"] = round.round;
  json["outcome"] = round.applied ? "applied" : "skipped";
  if (!round.message.empty()) json["message"] = round.message;
  json["rule"] = round.combination.rule;
  json["scope"] = round.combination.scope;
  json["rows"] = round.num_rows;
  json["excluded"] = round.num_excluded;
  json["last_rank"] = round.last_rank;
  json["last_rank_delay_seconds"] = RoundedNumber(round.max_delay_seconds);
  for (size_t i = 0; i < round.numbers.size(); ++i) {
    const std::string name = NameIn(RoundNumbers()[i], &RoundOutlets::trace);
    if (!name.empty()) json[name] = RoundedNumber(round.numbers[i]);
  }
  Json traceparents = Json::object();
  for (const auto& [rank, traceparent] : round.traceparents) {
    traceparents[absl::StrCat(rank)] = traceparent;
  }
  json["traceparents"] = std::move(traceparents);
  return json;
}

void AddRound(const RoundPoint& round, Json* events) {
  absl::Duration total;
  for (const TimedPhase& phase : kTimedPhases) {
    total += round.durations.*phase.length;
  }
  absl::Time start = round.finished_at - total;
  Json span =
      Span(absl::StrCat("round ", round.round), kCoordinator, start, total);
  span["args"] = ArgumentsJson(round);
  events->push_back(std::move(span));
  for (const TimedPhase& phase : kTimedPhases) {
    const absl::Duration length = round.durations.*phase.length;
    if (length <= absl::ZeroDuration()) continue;  // it did not run
    events->push_back(Span(phase.name, kCoordinator, start, length));
    for (size_t i = 0; phase.shard != nullptr && i < round.shard_seconds.size();
         ++i) {
      events->push_back(
          Span(phase.name, static_cast<int>(i) + 1, start,
               absl::Seconds(round.shard_seconds[i].*phase.shard)));
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
  Json events = Json::array();
  events.push_back(TrackName("process_name", absl::StrCat("agg_server ", job),
                             kCoordinator));
  events.push_back(TrackName("thread_name", "coordinator", kCoordinator));
  for (size_t i = 0; i < num_shards; ++i) {
    events.push_back(TrackName("thread_name", absl::StrCat("shard ", i),
                               static_cast<int>(i) + 1));
  }
  for (const RoundPoint& round : rounds) AddRound(round, &events);
  Json json;
  json["displayTimeUnit"] = "ms";
  json["traceEvents"] = std::move(events);
  return CompactJson(json);
}

}  // namespace agg
