// Names and help texts of transport_families.h. All series are there from the
// start, so that a rate sees the first event.
#include "server/metrics/transport_families.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "server/round/worker_transports.h"

namespace agg {

void AddLinkFamilies(const MetricsOptions& options, const JobStatus& status,
                     FamilyBuilder* builder) {
  builder->BeginGauge("aggserver_worker_links",
                      "Pairs of a worker that is in and a shard, by how rows "
                      "and parameters travel between them.");
  double unknown = options.shards * static_cast<double>(status.workers.size());
  for (size_t i = 0; i < kTransportNames.size(); ++i) {
    double number = 0.0;
    for (const WorkerState& worker : status.workers) {
      number += worker.transports.shards[i];
    }
    builder->Add(number, {{"transport", std::string(kTransportNames[i])}});
    unknown -= number;
  }
  builder->Add(std::max(unknown, 0.0), {{"transport", "unknown"}});
}

void AddFallbackFamilies(const ShardStatus& status, FamilyBuilder* builder) {
  builder->BeginCounter("aggserver_shared_memory_fallbacks_total",
                        "Buffers that were to be shared with workers of this "
                        "host and are private memory, by what for and why.");
  const auto add = [builder](int64_t number, const char* use,
                             const char* reason) {
    builder->Add(static_cast<double>(number),
                 {{"use", use}, {"reason", reason}});
  };
  add(status.shared_rows_refused, "rows", "refused");
  add(status.shared_rows_no_memory, "rows", "no_memory");
  add(status.shared_versions_refused, "versions", "refused");
  add(status.shared_versions_no_memory, "versions", "no_memory");
  builder->BeginCounter("aggserver_staged_buffers_total",
                        "Buffers shared with workers of this host that the "
                        "device copies by way of staging memory, since it "
                        "could not register them, by what for.");
  builder->Add(static_cast<double>(status.staged_rows), {{"use", "rows"}});
  builder->Add(static_cast<double>(status.staged_versions),
               {{"use", "versions"}});
}

}  // namespace agg
