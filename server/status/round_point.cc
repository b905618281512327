#include "server/status/round_point.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/json_writer.h"
#include "server/metrics/outlier_score.h"
#include "server/metrics/round_state.h"
#include "server/round/round_report.h"

namespace agg {
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
  for (size_t i = 0; i < report.rows.size(); ++i) {
    const RowInfo& row = report.rows[i];
    if (report.applied && !IsExcluded(report.decision, row.rank)) {
      point->examples += std::max<int64_t>(row.examples, 0);
    }
    if (i < report.commit_delays.size() && report.commit_delays[i] > longest) {
      longest = report.commit_delays[i];
      point->last_rank = row.rank;
      point->max_delay_seconds = absl::ToDoubleSeconds(longest);
    }
    if (i < report.traceparents.size() && !report.traceparents[i].empty() &&
        point->traceparents.size() < kMaxTraceparents) {
      point->traceparents.emplace_back(row.rank, report.traceparents[i]);
    }
  }
}

void WriteDurations(const PhaseDurations& durations, JsonWriter* json) {
  json->BeginArray();  // in the order of kPhaseNames
  for (const absl::Duration duration :
       {durations.wait, durations.gram, durations.compensated, durations.decide,
        durations.norms, durations.update, durations.publish}) {
    json->Number(absl::ToDoubleSeconds(duration));
  }
  json->EndArray();
}

// Rows of a packed upper triangle, made full.
void WriteMatrix(const std::vector<double>& packed, size_t side,
                 JsonWriter* json) {
  const auto at = [&](size_t i, size_t j) {
    const size_t row = std::min(i, j);
    const size_t index = row * (2 * side - row - 1) / 2 + std::max(i, j);
    return index < packed.size() ? packed[index] : kUndefined;
  };
  json->BeginArray();
  for (size_t i = 0; i < side; ++i) {
    json->BeginArray();
    for (size_t j = 0; j < side; ++j) json->Number(at(i, j));
    json->EndArray();
  }
  json->EndArray();
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
  point.orthogonality = decision.orthogonality;
  point.gain = decision.gain;
  point.tau = decision.tau;
  point.learning_rate = decision.learning_rate;
  point.loss = report.loss;
  point.gradient_diversity = decision.gradient_diversity;
  point.mean_cosine = report.statistics.mean_pairwise_cosine;
  point.min_cosine = report.statistics.min_pairwise_cosine;
  point.effective_rank = report.statistics.effective_rank;
  point.combined_norm = decision.combined_norm;
  point.noise_scale = report.statistics.gradient_noise_scale;
  point.durations = report.durations;
  for (const TensorSelection::Tensor& tensor : selection.tensors) {
    point.tensors.push_back(tensor.index < decision.tensors.size()
                                ? decision.tensors[tensor.index].orthogonality
                                : kUndefined);
  }
  point.shard_seconds = report.shard_seconds;
  return point;
}

void WriteRoundPoint(uint64_t sequence, const RoundPoint& point,
                     JsonWriter* json) {
  const auto number = [json](absl::string_view name, double value) {
    json->Key(name).Number(value);
  };
  json->BeginObject();
  json->Key("seq").Integer(static_cast<int64_t>(sequence));
  json->Key("round").Integer(static_cast<int64_t>(point.round));
  // Milliseconds; as an integer: a double's six digits are too few.
  json->Key("time").Integer(absl::ToUnixMillis(point.finished_at));
  json->Key("applied").Bool(point.applied);
  json->Key("rows").Integer(point.num_rows);
  json->Key("excluded").Integer(point.num_excluded);
  json->Key("seconds");
  WriteDurations(point.durations, json);
  number("loss", point.loss);
  number("delay", point.max_delay_seconds);
  json->Key("last").Integer(point.last_rank);
  if (!point.message.empty()) json->Key("message").String(point.message);
  if (point.applied) {
    json->Key("examples").Integer(point.examples);
    number("orthogonality", point.orthogonality);
    number("gain", point.gain);
    number("tau", point.tau);
    number("rate", point.learning_rate);
    number("diversity", point.gradient_diversity);
    number("cosine", point.mean_cosine);
    number("least", point.min_cosine);
    number("rank", point.effective_rank);
    number("norm", point.combined_norm);
    number("noise", point.noise_scale);
    json->Key("tensors").Numbers(point.tensors);
  }
  json->EndObject();
}

void WriteLastRound(const RoundReport& report, JsonWriter* json) {
  const RoundStatistics& statistics = report.statistics;
  json->BeginObject();
  json->Key("round").Integer(static_cast<int64_t>(report.round));
  json->Key("ranks").BeginArray();
  for (const RowInfo& row : report.rows) json->Integer(row.rank);
  json->EndArray();
  json->Key("excluded").BeginArray();
  for (const int32_t rank : report.decision.excluded_ranks) {
    json->Integer(rank);
  }
  json->EndArray();
  json->Key("coefficients").Numbers(statistics.row_coefficients);
  json->Key("norms").Numbers(statistics.row_norms);
  json->Key("means").Numbers(statistics.mean_cosines);
  json->Key("outliers").Numbers(OutlierScores(statistics.row_norms));
  const size_t side =
      std::min(report.rows.size(), static_cast<size_t>(kMaxMatrixRows));
  json->Key("cosines");
  WriteMatrix(statistics.cosines, side, json);
  json->EndObject();
}

}  // namespace agg
