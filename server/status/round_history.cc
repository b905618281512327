#include "server/status/round_history.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "server/base/json_writer.h"
#include "server/metrics/round_state.h"
#include "server/round/round_report.h"
#include "server/status/round_point.h"

namespace agg {
namespace {

bool SameNames(const TensorSelection& a, const TensorSelection& b) {
  return std::equal(a.tensors.begin(), a.tensors.end(), b.tensors.begin(),
                    b.tensors.end(), [](const auto& x, const auto& y) {
                      return x.index == y.index && x.name == y.name;
                    });
}

}  // namespace

void RoundHistory::SetTensors(
    const std::vector<std::pair<std::string, int64_t>>& tensors) {
  TensorSelection selection = SelectTensors(tensors, options_.max_tensors);
  MutexLock lock(&mutex_);
  if (!SameNames(selection, selection_)) {
    points_.clear();
    last_ = "null";
  }
  selection_ = std::move(selection);
}

void RoundHistory::Add(const RoundReport& report) {
  std::string last;
  if (report.applied) {
    JsonWriter json;
    WriteLastRound(report, &json);
    last = json.Take();
  }
  MutexLock lock(&mutex_);
  if (report.applied) last_ = std::move(last);
  points_.push_back(MakeRoundPoint(selection_, report));
  ++next_sequence_;
  if (points_.size() > options_.max_rounds) points_.pop_front();
  ++(report.applied ? outcomes_.applied : outcomes_.skipped);
  outcomes_.excluded_rows += points_.back().num_excluded;
  outcomes_.compensated += report.decision.compensated ? 1 : 0;
  outcomes_.adacons_fallbacks += report.decision.adacons_fallback ? 1 : 0;
}

void RoundHistory::Write(uint64_t after, JsonWriter* json) const {
  MutexLock lock(&mutex_);
  json->Key("tensors").BeginArray();
  for (const TensorSelection::Tensor& tensor : selection_.tensors) {
    json->String(tensor.name);
  }
  json->EndArray();
  json->Key("manifest_tensors")
      .Integer(static_cast<int64_t>(selection_.num_tensors));
  json->Key("outcomes").BeginObject();
  json->Key("applied").Integer(outcomes_.applied);
  json->Key("skipped").Integer(outcomes_.skipped);
  json->Key("excluded_rows").Integer(outcomes_.excluded_rows);
  json->Key("compensated").Integer(outcomes_.compensated);
  json->Key("adacons_fallbacks").Integer(outcomes_.adacons_fallbacks);
  json->EndObject();
  json->Key("last").Raw(last_);
  json->Key("next").Integer(static_cast<int64_t>(next_sequence_));
  const uint64_t first = next_sequence_ - points_.size();
  json->Key("rounds").BeginArray();
  for (size_t i = 0; i < points_.size(); ++i) {
    if (first + i >= after) WriteRoundPoint(first + i, points_[i], json);
  }
  json->EndArray();
}

std::vector<RoundPoint> RoundHistory::Points() const {
  MutexLock lock(&mutex_);
  return {points_.begin(), points_.end()};
}

}  // namespace agg
