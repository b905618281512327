// Which parts of a report the page keeps of each round, and their JSON. The
// round's numbers come from the table in server/round/round_numbers.
#include "server/status/round_point.h"

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
#include "server/metrics/round_state.h"
#include "server/round/round_numbers.h"
#include "server/round/round_report.h"
#include "server/round/shard_seconds.h"

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

namespace {

constexpr size_t kMaxMessageBytes = 200;

bool IsExcluded(const Decision& decision, int32_t rank) {
  const std::vector<int32_t>& excluded = decision.excluded_ranks;
  return std::find(excluded.begin(), excluded.end(), rank) != excluded.end();
}

void SetRows(const RoundReport& report, RoundPoint* point) {
  point->num_rows = static_cast<int64_t>(report.rows.size());
  point->num_excluded =
      static_cast<int64_t>(report.decision.excluded_ranks.size());
  absl::Duration longest = -absl::InfiniteDuration();
  for (const ReportedRow& row : report.rows) {
    if (report.applied && !IsExcluded(report.decision, row.rank)) {
      point->examples += std::max<int64_t>(row.examples, 0);
    }
    if (row.commit_delay > longest) {
      longest = row.commit_delay;
      point->last_rank = row.rank;
      point->max_delay_seconds = absl::ToDoubleSeconds(longest);
    }
    if (!row.traceparent.empty() &&
        point->traceparents.size() < kMaxTraceparents) {
      point->traceparents.emplace_back(row.rank, row.traceparent);
    }
  }
}

// In the order of kTimedPhases.
Json DurationsJson(const PhaseDurations& durations) {
  Json list = Json::array();
  for (const TimedPhase& phase : kTimedPhases) {
    list.push_back(
        RoundedNumber(absl::ToDoubleSeconds(durations.*phase.length)));
  }
  return list;
}

// The square matrix whose upper triangle is `packed`, row by row: the page
// draws it as it is.
Json MatrixJson(const std::vector<double>& packed, size_t side) {
  const auto at = [&](size_t i, size_t j) {
    const size_t row = std::min(i, j);
    const size_t index = row * (2 * side - row - 1) / 2 + std::max(i, j);
    return index < packed.size() ? packed[index] : kUndefined;
  };
  Json matrix = Json::array();
  for (size_t i = 0; i < side; ++i) {
    Json row = Json::array();
    for (size_t j = 0; j < side; ++j) row.push_back(RoundedNumber(at(i, j)));
    matrix.push_back(std::move(row));
  }
  return matrix;
}

// The numbers that every round sets, or else the others.
void AddNumbers(const RoundPoint& point, bool set_by_every, Json* json) {
  for (size_t i = 0; i < point.numbers.size(); ++i) {
    const RoundNumber& number = RoundNumbers()[i];
    const std::string key = NameIn(number, &RoundOutlets::page);
    if (key.empty() || (number.set_by == SetBy::kEvery) != set_by_every) {
      continue;
    }
    (*json)[key] = RoundedNumber(point.numbers[i]);
  }
}

}  // namespace

RoundPoint MakeRoundPoint(const TensorSelection& selection,
                          const RoundReport& report) {
  const Decision& decision = report.decision;
  RoundPoint point;
  point.epoch = report.epoch;
  point.round = report.round;
  point.applied = report.applied;
  point.message = report.message.substr(0, kMaxMessageBytes);
  point.combination = report.combination;
  point.finished_at = report.finished_at;
  SetRows(report, &point);
  point.numbers = ReadRoundNumbers(report);
  point.durations = report.durations;
  for (const TensorSelection::Tensor& tensor : selection.tensors) {
    point.tensors.push_back(tensor.index < decision.tensors.size()
                                ? decision.tensors[tensor.index].orthogonality
                                : kUndefined);
  }
  point.shard_seconds = report.shard_seconds;
  return point;
}

Json RoundPointJson(uint64_t sequence, const RoundPoint& point) {
  Json json;
  json["seq"] = sequence;
  json["round"] = point.round;
  // Milliseconds, as an integer: six digits are too few.
  json["time"] = absl::ToUnixMillis(point.finished_at);
  json["applied"] = point.applied;
  json["rows"] = point.num_rows;
  json["excluded"] = point.num_excluded;
  json["seconds"] = DurationsJson(point.durations);
  AddNumbers(point, /*set_by_every=*/true, &json);
  json["delay"] = RoundedNumber(point.max_delay_seconds);
  json["last"] = point.last_rank;
  if (!point.message.empty()) json["message"] = point.message;
  if (point.applied) {
    json["examples"] = point.examples;
    AddNumbers(point, /*set_by_every=*/false, &json);
    json["tensors"] = RoundedNumbers(point.tensors);
  }
  return json;
}

Json RoundDetailJson(const RoundReport& report) {
  const RoundStatistics& statistics = report.statistics;
  Json ranks = Json::array();
  for (const RowInfo& row : report.rows) ranks.push_back(row.rank);
  const size_t side =
      std::min(report.rows.size(), static_cast<size_t>(kMaxMatrixRows));
  Json json;
  json["round"] = report.round;
  json["ranks"] = std::move(ranks);
  json["excluded"] = report.decision.excluded_ranks;
  // What the policy of outliers has found, whether it excludes them or not.
  json["outlier_ranks"] = Json::array();
  for (const OutlierRow& row : report.decision.outliers.rows) {
    json["outlier_ranks"].push_back(row.rank);
  }
  // Left out though nothing is wrong with their values: some were not there.
  json["incomplete_ranks"] = Json::array();
  for (const IncompleteRow& row : report.incomplete_rows) {
    json["incomplete_ranks"].push_back(row.rank);
  }
  for (const PartialRow& row : report.partial_rows) {
    json["incomplete_ranks"].push_back(row.rank);
  }
  json["coefficients"] = RoundedNumbers(statistics.row_coefficients);
  json["norms"] = RoundedNumbers(statistics.row_norms);
  json["means"] = RoundedNumbers(statistics.mean_cosines);
  json["outliers"] = RoundedNumbers(OutlierScores(statistics.row_norms));
  Json seconds = Json::array();
  for (const ShardSeconds& shard : report.shard_seconds) {
    seconds.push_back(RoundedNumber(shard.gram + shard.compensated +
                                    shard.norms + shard.update +
                                    shard.publish));
  }
  json["shard_seconds"] = std::move(seconds);
  json["cosines"] = MatrixJson(statistics.cosines, side);
  return json;
}

Json TilesJson() {
  Json tiles = Json::array();
  for (const RoundNumber& number : RoundNumbers()) {
    const std::string key = NameIn(number, &RoundOutlets::page);
    const std::string label = LabelIn(number, &RoundOutlets::tile);
    if (key.empty() || label.empty()) continue;
    tiles.push_back({{"key", key}, {"label", label}, {"unit", number.unit}});
  }
  return tiles;
}

Json TensorsJson(const TensorSelection& selection) {
  Json names = Json::array();
  for (const TensorSelection::Tensor& tensor : selection.tensors) {
    names.push_back(tensor.name);
  }
  return names;
}

}  // namespace agg
