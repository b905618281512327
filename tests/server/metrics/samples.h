// Hand-made reports and states.
#ifndef AGG_TESTS_SERVER_METRICS_SAMPLES_H_
#define AGG_TESTS_SERVER_METRICS_SAMPLES_H_

#include <cstdint>
#include <limits>

#include "absl/time/time.h"
#include "server/base/job_phase.h"
#include "server/metrics/round_state.h"
#include "server/round/round_report.h"

namespace agg {

// A job of two workers with two shadow rules.
inline MetricsOptions Options() {
  MetricsOptions options;
  options.job = "digits";
  options.shards = 5;
  options.workers = 2;
  options.rule = "adasum";
  options.scope = "per_tensor";
  options.step_scale = "adascale";
  options.shadow_rules = {{"mean", "per_tensor"}, {"adacons", "global"}};
  options.version = "0.1.0";
  return options;
}

// Every number is different, so that none can stand in for another.
inline RoundReport Report() {
  RoundReport report;
  report.epoch = 1700000000123456;
  report.applied = true;
  report.loss = 0.75;
  report.rows.resize(2);
  report.rows[0].examples = 3;
  report.rows[1].rank = 1;
  report.rows[1].commit_delay = absl::Milliseconds(125);
  report.rows[1].examples = 4;
  Decision& decision = report.decision;
  decision.scheduled_learning_rate = 0.05;
  decision.step_factor = 1.5;
  decision.learning_rate = 0.075;
  decision.gain = 1.625;
  decision.next_gain = 1.6875;
  decision.tau = 12.5;
  decision.clip_factor = 0.875;
  decision.combined_norm = 2.25;
  decision.sigma2 = 6.5;
  decision.mu2 = std::numeric_limits<double>::quiet_NaN();
  decision.sigma2_mean = 7.5;
  decision.mu2_mean = 8.5;
  decision.orthogonality = 0.9375;
  decision.gradient_diversity = 1.125;
  decision.tensors = {
      {0.5, 1.0, 10.0, false, false},
      {0.625, 2.0, 20.0, true, false},
      {std::numeric_limits<double>::quiet_NaN(), 3.0, 30.0, false, false}};
  decision.tensors[1].gain = 3.5;
  decision.compensated = true;
  RoundStatistics& statistics = report.statistics;
  statistics.row_norms = {3.5, 4.5};
  statistics.mean_cosines = {0.25, -0.25};
  statistics.mean_pairwise_cosine = 0.375;
  statistics.min_pairwise_cosine = -0.125;
  statistics.effective_rank = 1.75;
  statistics.gradient_noise_scale = 644.0;
  statistics.max_kappa = 31.0;
  statistics.coefficient_sum = 1.875;
  statistics.row_coefficients = {0.8125, 1.0625};
  statistics.shadows.resize(2);
  statistics.shadows[0].cosine = 0.96875;
  statistics.shadows[0].norm = 1.03125;
  statistics.shadows[1].cosine = 0.984375;
  statistics.shadows[1].norm = 1.015625;
  statistics.shadows[1].coefficients = {0.4375, 0.5625};
  report.durations.wait = absl::Milliseconds(20);
  report.durations.gram = absl::Milliseconds(3);
  report.durations.update = absl::Microseconds(700);
  return report;
}

inline ShardStatus Shard() {
  ShardStatus status;
  status.epoch = 1700000000123456;
  status.attached = true;
  status.published = true;
  status.version = 41;
  status.num_slices = 6;
  status.num_elements = 4810;
  status.memory_planned_bytes = 1000;
  status.memory_budget_bytes = 2000;
  status.push_bytes = (int64_t{1} << 40) + 1;
  status.push_bytes_in_place = 44;
  status.push_bytes_on_device = 40;
  status.pull_bytes_in_place = 33;
  status.duplicate_bytes = 5;
  status.pull_bytes = 77;
  status.crc_errors = 2;
  status.revoked_snapshots = 1;
  status.overtaken_pulls = 10;
  status.shared_rows_refused = 3;
  status.shared_rows_no_memory = 4;
  status.shared_versions_refused = 6;
  status.shared_versions_no_memory = 7;
  status.staged_rows = 8;
  status.staged_versions = 9;
  status.backend = "cpu";
  return status;
}

inline JobStatus Job() {
  JobStatus status;
  status.phase = JobPhase::kOpen;
  status.combination = {"adasum", "per_tensor", "adascale"};
  status.seeded = true;
  status.version = 41;
  status.round = 41;
  status.workers.resize(3);
  status.workers[0].committed = true;
  status.workers[0].attending = true;
  status.workers[1].rank = 1;
  status.workers[1].attending = true;
  status.workers[1].waited_for = absl::Milliseconds(1500);
  status.workers[1].late_rows = 12;
  status.workers[1].last_rows = 40;
  status.workers[1].lateness = absl::Milliseconds(250);
  // They are with the options' five shards; the third one does not say it.
  status.workers[0].transports.shards = {5, 0, 0, 0, 0};
  status.workers[1].transports.shards = {1, 1, 1, 1, 1};
  status.round_timeout = absl::Seconds(4);
  status.workers[2].rank = 90;  // above the cap
  status.workers[2].waited_for = absl::Milliseconds(2500);
  status.missing_ranks = {1, 90};
  return status;
}

}  // namespace agg

#endif  // AGG_TESTS_SERVER_METRICS_SAMPLES_H_
