// The members of /status.json, as page/page.js reads them.
#include "server/status/status_json.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "server/base/job_phase.h"
#include "server/base/json.h"
#include "server/metrics/round_state.h"
#include "server/round/round_report.h"
#include "server/round_log/round_log_status.h"
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

namespace {

constexpr size_t kMaxClientBytes = 200;
constexpr size_t kMaxErrorBytes = 400;
// What a person is to do names shards and files.
constexpr size_t kMaxAdviceBytes = 4000;

// Epochs are texts: JavaScript's numbers do not hold all of them exactly.
std::string EpochText(uint64_t epoch) { return absl::StrCat(epoch); }

Json WorkerJson(const std::string& phase, bool missing,
                const WorkerState& worker) {
  WorkerFacts facts;
  facts.committed = worker.committed;
  facts.missing = missing;
  facts.waited_seconds = absl::ToDoubleSeconds(worker.waited_for);
  return {{"rank", worker.rank},
          {"state", WorkerWord(phase, facts)},
          {"client", worker.client.substr(0, kMaxClientBytes)},
          {"committed", worker.committed},
          {"attending", worker.attending},
          {"waited", RoundedNumber(absl::ToDoubleSeconds(worker.waited_for))},
          {"late", worker.late_rows},
          {"last", worker.last_rows},
          {"lateness", RoundedNumber(absl::ToDoubleSeconds(worker.lateness))},
          {"transports", worker.transports.text}};
}

// Null where none are configured.
Json CheckpointJson(const CheckpointStatus& status) {
  if (!status.configured) return Json();
  Json json = {{"writing", status.writing},
               {"error", status.last_error.substr(0, kMaxErrorBytes)},
               {"sealed", status.num_sealed},
               {"failed", status.num_failed},
               {"skipped", status.num_skipped}};
  json["version"] = status.made == 0 ? Json() : Json(status.version);
  json["age"] = status.made == 0
                    ? Json()
                    : RoundedNumber(absl::ToDoubleSeconds(status.age));
  json["restore"] = status.restore.substr(0, kMaxErrorBytes);
  json["restored"] =
      status.restored_made == 0 ? Json() : Json(status.restored_version);
  return json;
}

// Errors are other processes' texts: cut, so that the page stays small.
Json ShardErrorsJson(const std::vector<std::string>& errors) {
  Json json = Json::array();
  for (const std::string& error : errors) {
    json.push_back(error.substr(0, kMaxErrorBytes));
  }
  return json;
}

Json RuleProcessesJson(const std::vector<RuleProcessStatus>& processes) {
  Json json = Json::array();
  for (const RuleProcessStatus& process : processes) {
    json.push_back(
        {{"name", process.name},
         {"connected", process.connected},
         {"client", process.client},
         {"answers", process.answers},
         {"missing_answers", process.missing_answers},
         {"late_answers", process.late_answers},
         {"last_missing", process.last_missing.substr(0, kMaxAdviceBytes)}});
  }
  return json;
}

Json JobJson(const JobStatus& job) {
  Json workers = Json::array();
  const std::set<int32_t> missing(job.missing_ranks.begin(),
                                  job.missing_ranks.end());
  for (const WorkerState& worker : job.workers) {
    workers.push_back(WorkerJson(PhaseName(job.phase),
                                 missing.count(worker.rank) > 0, worker));
  }
  return {{"phase", PhaseName(job.phase)},
          {"epoch", EpochText(job.epoch)},
          {"version", job.version},
          {"round", job.round},
          {"seeded", job.seeded},
          {"message", job.message},
          {"rule", job.combination.rule},
          {"scope", job.combination.scope},
          {"step_scale", job.combination.step_scale},
          {"missing", job.missing_ranks},
          {"differing", job.differing_ranks},
          {"rule_processes", RuleProcessesJson(job.rule_processes)},
          {"shard_errors", ShardErrorsJson(job.shard_errors)},
          {"min_workers", job.min_workers},
          {"below_floor",
           RoundedNumber(absl::ToDoubleSeconds(job.below_floor_for))},
          {"round_timeout",
           RoundedNumber(absl::ToDoubleSeconds(job.round_timeout))},
          {"recovering", job.recovering.substr(0, kMaxAdviceBytes)},
          {"replicated", job.replicated},
          {"history", EpochText(job.history)},
          {"rewinds", job.rewinds},
          {"checkpoint", CheckpointJson(job.checkpoint)},
          {"workers", std::move(workers)}};
}

Json ShardJson(const ShardStatus& shard) {
  Json json = {{"ordinal", shard.ordinal},
               {"epoch", EpochText(shard.epoch)},
               {"attached", shard.attached},
               {"published", shard.published},
               {"version", shard.version},
               {"slices", shard.num_slices},
               {"elements", shard.num_elements},
               {"memory_planned_bytes", shard.memory_planned_bytes},
               {"memory_budget_bytes", shard.memory_budget_bytes}};
  if (shard.device_memory_total_bytes > 0) {
    json.update(
        {{"device_memory_planned_bytes", shard.device_memory_planned_bytes},
         {"device_memory_budget_bytes", shard.device_memory_budget_bytes},
         {"device_memory_used_bytes", shard.device_memory_used_bytes},
         {"device_memory_total_bytes", shard.device_memory_total_bytes}});
  }
  json.update({{"push_bytes", shard.push_bytes},
               {"duplicate_bytes", shard.duplicate_bytes},
               {"pull_bytes", shard.pull_bytes},
               {"crc_errors", shard.crc_errors},
               {"revoked_snapshots", shard.revoked_snapshots},
               {"shared_fallbacks", shard.shared_fallbacks()},
               {"early_grams", shard.early_grams},
               {"grams_at_close", shard.grams_at_close},
               {"backend", shard.backend},
               {"backend_errors", shard.backend_errors}});
  return json;
}

}  // namespace

Json ServerJson(const StatusPageOptions& options) {
  return {{"job", options.metrics.job},
          {"version", options.metrics.version},
          {"ordinal", options.metrics.ordinal},
          {"workers", options.metrics.workers},
          {"rule", options.metrics.rule},
          {"scope", options.metrics.scope},
          {"step_scale", options.metrics.step_scale},
          {"replicated", options.metrics.replicated},
          {"insecure", options.metrics.insecure},
          {"identities", options.identities},
          {"shards", options.shards},
          {"coordinator",
           {{"host", options.coordinator_host},
            {"port", options.coordinator_port}}}};
}

std::string StatusJson(const StatusPageOptions& options,
                       const ShardStatus& shard,
                       const std::optional<JobStatus>& job,
                       const RoundHistory* history,
                       const std::optional<RoundLogStatus>& round_log,
                       uint64_t after) {
  Json json;
  json["instance"] = options.instance;
  json["server"] = ServerJson(options);
  json["job"] = job.has_value() ? JobJson(*job) : Json();
  json["shard"] = ShardJson(shard);
  if (history != nullptr) history->AddTo(after, &json);
  if (round_log.has_value()) {
    json["round_log"] = {{"records", round_log->records},
                         {"errors", round_log->errors}};
  }
  return CompactJson(json);
}

}  // namespace agg
