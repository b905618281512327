// Names and help texts of arrival_families.h.
#include "server/metrics/arrival_families.h"

#include <string>

#include "absl/time/time.h"

namespace agg {
namespace {

// A worker that has left has no series until it is back: a counter that fell
// to 0 meanwhile would count twice.
template <typename ValueOf>
void AddPerWorker(const MetricsOptions& options, const JobStatus& status,
                  const ValueOf& value_of, FamilyBuilder* builder) {
  for (const WorkerState& worker : status.workers) {
    if (worker.rank < 0 || worker.rank >= options.max_workers) continue;
    builder->Add(value_of(worker), {{"worker", std::to_string(worker.rank)}});
  }
}

}  // namespace

void AddArrivalFamilies(const MetricsOptions& options, const JobStatus& status,
                        FamilyBuilder* builder) {
  builder->Gauge("aggserver_round_timeout_seconds",
                 "How long after its first commit a round closes at the "
                 "latest; 0: it has no such limit.",
                 absl::ToDoubleSeconds(status.round_timeout));
  builder->BeginCounter("aggserver_worker_late_rows_total",
                        "Gradients that came when their round had closed.");
  AddPerWorker(
      options, status,
      [](const WorkerState& w) { return static_cast<double>(w.late_rows); },
      builder);
  builder->BeginCounter("aggserver_worker_last_rows_total",
                        "Rounds of which this worker's gradient was the last.");
  AddPerWorker(
      options, status,
      [](const WorkerState& w) { return static_cast<double>(w.last_rows); },
      builder);
  builder->BeginGauge("aggserver_worker_lateness_seconds",
                      "Median of the last rounds: this worker's commit after "
                      "the first one.");
  AddPerWorker(
      options, status,
      [](const WorkerState& w) { return absl::ToDoubleSeconds(w.lateness); },
      builder);
}

}  // namespace agg
