// What the coordinator adds after each round, and what requests read of it.
// JSON is made outside of the lock, so that a request never makes a round wait.
#include "server/status/round_history.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "server/base/json.h"
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
    last_ = nullptr;
  }
  selection_ = std::move(selection);
}

void RoundHistory::Add(const RoundReport& report) {
  std::shared_ptr<const Json> last;
  if (report.applied) {
    last = std::make_shared<const Json>(RoundDetailJson(report));
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

void RoundHistory::AddTo(uint64_t after, Json* json) const {
  TensorSelection selection;
  std::vector<RoundPoint> points;
  Outcomes outcomes;
  std::shared_ptr<const Json> last;
  uint64_t next = 0;
  {
    MutexLock lock(&mutex_);
    selection = selection_;
    outcomes = outcomes_;
    last = last_;
    next = next_sequence_;
    const uint64_t first = next - points_.size();
    const uint64_t skipped = std::min(std::max(after, first), next) - first;
    points.assign(points_.begin() + static_cast<std::ptrdiff_t>(skipped),
                  points_.end());
  }
  (*json)["tensors"] = TensorsJson(selection);
  (*json)["manifest_tensors"] = selection.num_tensors;
  (*json)["numbers"] = TilesJson();
  (*json)["outcomes"] = {{"applied", outcomes.applied},
                         {"skipped", outcomes.skipped},
                         {"excluded_rows", outcomes.excluded_rows},
                         {"compensated", outcomes.compensated},
                         {"adacons_fallbacks", outcomes.adacons_fallbacks}};
  (*json)["last"] = last == nullptr ? Json() : *last;
  (*json)["next"] = next;
  Json rounds = Json::array();
  for (size_t i = 0; i < points.size(); ++i) {
    rounds.push_back(RoundPointJson(next - points.size() + i, points[i]));
  }
  (*json)["rounds"] = std::move(rounds);
}

std::vector<RoundPoint> RoundHistory::Points() const {
  MutexLock lock(&mutex_);
  return {points_.begin(), points_.end()};
}

}  // namespace agg
