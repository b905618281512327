// Rounds to be logged, and files to log them in.
#ifndef AGG_TESTS_SERVER_ROUND_LOG_LOGGED_ROUNDS_H_
#define AGG_TESTS_SERVER_ROUND_LOG_LOGGED_ROUNDS_H_

#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/round/round_report.h"
#include "server/round_log/round_record.h"

namespace agg {

inline RunDescription SomeRun() {
  RunDescription run;
  run.job = "digits";
  run.server_version = "1.2.3";
  run.started_at = absl::FromUnixMillis(1700000000500);
  run.config = "job: \"digits\"\nworkers: 3\n";
  run.workers = 3;
  run.shards = 2;
  run.tensors = {{"a<b>&\"", 12}, {"bias", 3}};
  run.joined = {{0, "host:7"}, {5, "host:8, seed 3"}};
  return run;
}

// Three workers, rank 5 left out; every number another one. Numbers with a
// float32's place in the log are float32s.
inline RoundReport SomeRound(uint64_t round) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  RoundReport report;
  report.epoch = 1700000000123456;
  report.round = round;
  report.version = round + 1;
  report.applied = true;
  report.message = "excluded non-finite rows of ranks 5";
  report.combination = {"adasum", "per_tensor", "adascale"};
  report.rows.resize(3);
  for (int i = 0; i < 3; ++i) {
    report.rows[i].rank = i == 2 ? 5 : i;
    report.rows[i].examples = 8 + i;
    report.rows[i].accumulation = 1 + i;
    report.rows[i].loss_scale = i == 1 ? 1024.0 : 1.0;
    report.rows[i].session = 4096 + i;
  }
  report.rows[1].attempt = 2;
  report.rows[1].commit_delay = absl::Milliseconds(250);
  report.rows[2].commit_delay = absl::Milliseconds(125);
  report.rows[1].traceparent =
      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  report.rows[0].row_crc32c = {7, 8};
  report.rows[2].row_crc32c = {9, 0};
  report.history = 1700000000000000;
  report.loss = 0.75;
  Decision& decision = report.decision;
  decision.excluded_ranks = {5};
  decision.per_tensor = true;
  decision.coefficients = {{0.5, 0.25, 0.0}, {0.125, -3.5, 0.0}};
  decision.scheduled_learning_rate = 0.1;
  decision.step_factor = 1.5;
  decision.learning_rate = 0.15;
  decision.gain = 1.7;
  decision.tau = 12.3;
  decision.clip_factor = 0.9;
  decision.combined_norm = 2.2;
  decision.sigma2 = 3.3;
  decision.mu2 = kNan;
  decision.sigma2_mean = 4.4;
  decision.mu2_mean = 5.5;
  decision.orthogonality = 0.8;
  decision.gradient_diversity = 0.6;
  decision.tensors.resize(2);
  decision.tensors[0].orthogonality = 0.75;
  decision.tensors[1].orthogonality = 0.625;
  decision.tensors[0].row_norm = 1.5;
  decision.tensors[1].row_norm = 0.5;
  RoundStatistics& statistics = report.statistics;
  statistics.row_norms = {2.0, 3.0, kNan};
  statistics.mean_cosines = {0.5, 0.5, kNan};
  statistics.row_coefficients = {0.3125, -1.625, 0.0};
  statistics.gram = {4.0, 3.0, kNan, 9.0, kNan, kNan};
  statistics.cosines = {1.0, 0.5, kNan, 1.0, kNan, kNan};
  statistics.tensor_grams = {3.0, 2.0, kNan, 8.0, kNan, kNan,
                             1.0, 1.0, kNan, 1.0, kNan, kNan};
  statistics.mean_pairwise_cosine = 0.51;
  statistics.min_pairwise_cosine = 0.49;
  statistics.effective_rank = 1.8;
  statistics.gradient_noise_scale = 77.0;
  statistics.max_kappa = 21.0;
  statistics.coefficient_sum = -1.3125;
  ShadowReport shadow;
  shadow.rule = FindRule("mean");
  shadow.scope = Scope::kGlobal;
  shadow.norm = 1.9;
  shadow.cosine = 0.95;
  statistics.shadows = {shadow};
  report.durations.wait = absl::Milliseconds(500);
  report.durations.gram = absl::Milliseconds(10);
  report.durations.decide = absl::Milliseconds(1);
  report.durations.update = absl::Milliseconds(20);
  report.durations.publish = absl::Milliseconds(2);
  report.finished_at =
      absl::FromUnixMillis(1700000010000 + 1000 * static_cast<int64_t>(round));
  report.shard_seconds.resize(2);
  report.shard_seconds[0].gram = 0.008;
  report.shard_seconds[1].update = 0.016;
  return report;
}

// A path in the test's folder that nothing lies at yet.
inline std::string FreshPath(absl::string_view name) {
  const std::string path = absl::StrCat(testing::TempDir(), "/", name);
  std::remove(path.c_str());
  std::remove((path + ".1").c_str());
  return path;
}

inline std::string FileBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

inline void WriteFileBytes(const std::string& path, absl::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace agg

#endif  // AGG_TESTS_SERVER_ROUND_LOG_LOGGED_ROUNDS_H_
