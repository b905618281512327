// Names and help texts of survival_families.h.
#include "server/metrics/survival_families.h"

#include <limits>

#include "absl/time/time.h"

namespace agg {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

void AddCheckpoints(const MetricsOptions& options,
                    const CheckpointStatus& status, FamilyBuilder* builder) {
  const bool none_yet = status.configured && status.made == 0;
  builder->Gauge("aggserver_checkpoint_interval_seconds",
                 "checkpoint.every_seconds; 0: not by time, or no checkpoints.",
                 options.checkpoint_every_seconds);
  builder->Gauge("aggserver_checkpoint_version",
                 "Version of the newest complete checkpoint; NaN: none yet; 0 "
                 "without checkpoints.",
                 none_yet ? kUnknown : static_cast<double>(status.version));
  builder->Gauge("aggserver_checkpoint_age_seconds",
                 "Since the newest checkpoint was complete, or the job went on "
                 "from it; NaN: none yet; 0 without checkpoints.",
                 none_yet ? kUnknown : absl::ToDoubleSeconds(status.age));
  builder->Gauge("aggserver_checkpoint_writing",
                 "1 while a checkpoint is being written, else 0.",
                 status.writing ? 1.0 : 0.0);
  builder->Counter("aggserver_checkpoint_sealed_total",
                   "Checkpoints that were completed.",
                   static_cast<double>(status.num_sealed));
  builder->Counter("aggserver_checkpoint_failed_total",
                   "Checkpoints that were given up after an error.",
                   static_cast<double>(status.num_failed));
  builder->Counter("aggserver_checkpoint_skipped_total",
                   "Checkpoints that were due while one was being written.",
                   static_cast<double>(status.num_skipped));
}

}  // namespace

void AddSurvivalFamilies(const MetricsOptions& options, const JobStatus& status,
                         FamilyBuilder* builder) {
  builder->Gauge("aggserver_recovering",
                 "1 while the job is between two epochs and waits for "
                 "something, else 0.",
                 status.recovering.empty() ? 0.0 : 1.0);
  builder->Gauge("aggserver_replication_configured",
                 "1 with replication \"buddy\", else 0.",
                 options.replicated ? 1.0 : 0.0);
  builder->Gauge("aggserver_replicated",
                 "1 while each part has its two copies in memory, else 0.",
                 status.replicated ? 1.0 : 0.0);
  builder->Counter("aggserver_rewinds_total",
                   "Times that the job has gone back to a checkpoint.",
                   static_cast<double>(status.rewinds));
  builder->Gauge("aggserver_history",
                 "The epoch of the last seed or rewind; 0 before the seed.",
                 static_cast<double>(status.history));
  AddCheckpoints(options, status.checkpoint, builder);
}

}  // namespace agg
