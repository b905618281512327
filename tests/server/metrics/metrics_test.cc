#include "server/metrics/metrics.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/job_phase.h"
#include "server/metrics/round_state.h"
#include "server/round/round_numbers.h"
#include "server/round/round_report.h"
#include "tests/server/metrics/samples.h"
#include "tests/server/metrics/scrape.h"

namespace agg {
namespace {

using ::testing::ContainerEq;
using ::testing::IsEmpty;

TEST(MetricsTest, EverySeriesExistsFromTheStart) {
  const Metrics metrics(
      Options(), [] { return ShardStatus(); }, [] { return std::nullopt; });
  const Scrape scrape(metrics.Expose());
  for (const char* gauge :
       {"aggserver_gradient_diversity", "aggserver_gain_ratio",
        "aggserver_learning_rate", "aggserver_loss", "aggserver_gradient_norm",
        "aggserver_pairwise_cosine_mean", "aggserver_pairwise_cosine_min",
        "aggserver_effective_rank", "aggserver_gradient_noise_scale",
        "aggserver_useful_workers", "aggserver_sigma2", "aggserver_mu2",
        "aggserver_round", "aggserver_job_version", "aggserver_version"}) {
    EXPECT_TRUE(std::isnan(scrape.Value(gauge))) << gauge;
  }
  EXPECT_TRUE(
      std::isnan(scrape.Value("aggserver_orthogonality", "tensor=\"\"")));
  EXPECT_TRUE(
      std::isnan(scrape.Value("aggserver_adasum_kappa", "tensor=\"\"")));
  for (const char* worker : {"worker=\"0\"", "worker=\"1\""}) {
    EXPECT_TRUE(
        std::isnan(scrape.Value("aggserver_adacons_coefficient", worker)));
    EXPECT_TRUE(
        std::isnan(scrape.Value("aggserver_worker_coefficient", worker)));
    EXPECT_EQ(scrape.Value("aggserver_worker_excluded_rows_total", worker), 0);
    EXPECT_EQ(scrape.Value("aggserver_worker_outlier_rows_total", worker), 0);
  }
  for (const char* labels : {"outcome=\"applied\"", "outcome=\"skipped\""}) {
    EXPECT_EQ(scrape.Value("aggserver_rounds_total", labels), 0);
  }
  for (const char* labels :
       {"kind=\"compensated_gram\"", "kind=\"adacons_mean\"",
        "kind=\"few_rows\"", "kind=\"external_rule\""}) {
    EXPECT_EQ(scrape.Value("aggserver_fallbacks_total", labels), 0);
  }
  for (const char* labels : {"becomes=\"infinity\"", "becomes=\"zero\""}) {
    EXPECT_EQ(scrape.Value("aggserver_narrowed_values_total", labels), 0);
  }
  for (const char* phase : {"wait", "gram", "compensated", "decide", "norms",
                            "update", "publish"}) {
    EXPECT_EQ(scrape.Value("aggserver_round_duration_seconds_count",
                           absl::StrCat("phase=\"", phase, "\"")),
              0);
  }
  EXPECT_EQ(scrape.Count("aggserver_job_phase"), 7);
  EXPECT_EQ(scrape.Count("aggserver_shadow_cosine"), 2);
  for (const char* counter :
       {"aggserver_scale_invariant_iterations_total",
        "aggserver_excluded_rows_total", "aggserver_push_bytes_total",
        "aggserver_pull_bytes_total", "aggserver_crc_errors_total",
        "aggserver_duplicate_bytes_total", "aggserver_revoked_snapshots_total",
        "aggserver_overtaken_pulls_total", "aggserver_examples_total"}) {
    EXPECT_EQ(scrape.Value(counter), 0) << counter;
  }
}

TEST(MetricsTest, ARoundAddsNoSeries) {
  Metrics metrics(Options(), Shard, Job);
  metrics.SetTensors({{"w", 9}, {"b", 3}, {"v", 5}});
  const Scrape before(metrics.Expose());
  metrics.OnRound(Report());
  const Scrape after(metrics.Expose());
  std::vector<std::string> added;
  for (const auto& [series, value] : after.values) {
    if (before.values.count(series) == 0) added.push_back(series);
  }
  EXPECT_THAT(added, IsEmpty());
  EXPECT_EQ(before.values.size(), after.values.size());
}

TEST(MetricsTest, FamiliesAreWellFormed) {
  Metrics metrics(Options(), Shard, Job);
  metrics.SetTensors({{"w", 9}, {"b", 3}});
  metrics.OnRound(Report());
  const Scrape scrape(metrics.Expose());
  EXPECT_THAT(scrape.duplicates, IsEmpty());
  EXPECT_GT(scrape.types.size(), 40u);
  for (const auto& [name, type] : scrape.types) {
    EXPECT_TRUE(absl::StartsWith(name, "aggserver_") ||
                absl::StartsWith(name, "process_"))
        << name;
    EXPECT_EQ(type == "counter", absl::EndsWith(name, "_total")) << name;
    EXPECT_EQ(scrape.helped.count(name), 1u) << name;
  }
  EXPECT_EQ(scrape.types.at("aggserver_round_duration_seconds"), "histogram");
  EXPECT_EQ(scrape.types.at("aggserver_gain_ratio"), "gauge");
  for (const auto& [series, value] : scrape.values) {
    EXPECT_TRUE(absl::StrContains(series, kConstant)) << series;
  }
}

// The names in backquotes that begin as metrics do.
std::set<std::string> DocumentedNames() {
  std::ifstream file("server/metrics/README.md");
  const std::string text((std::istreambuf_iterator<char>(file)),
                         std::istreambuf_iterator<char>());
  std::set<std::string> names;
  for (absl::string_view part : absl::StrSplit(text, '`')) {
    const bool is_name =
        (absl::StartsWith(part, "aggserver_") ||
         absl::StartsWith(part, "process_")) &&
        part != "aggserver_" && part != "process_" &&
        part.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789") ==
            absl::string_view::npos;
    if (is_name) names.emplace(part);
  }
  return names;
}

TEST(MetricsTest, TheReadmeListsExactlyTheFamilies) {
  const Metrics metrics(Options(), Shard, Job);
  std::set<std::string> names;
  for (const auto& [name, type] : Scrape(metrics.Expose()).types) {
    names.insert(name);
  }
  EXPECT_THAT(names, ContainerEq(DocumentedNames()));
}

// The unit that the row with `metric` has in a table of the README.
std::string DocumentedUnit(const std::string& metric) {
  std::ifstream file("server/metrics/README.md");
  for (std::string line; std::getline(file, line);) {
    // Before the first cell there is nothing: name, type, labels, unit.
    const std::vector<std::string> cells = absl::StrSplit(line, '|');
    if (cells.size() > 4 &&
        absl::StrContains(cells[1], absl::StrCat("`", metric, "`"))) {
      return std::string(absl::StripAsciiWhitespace(cells[4]));
    }
  }
  return "no row";
}

TEST(MetricsTest, TheReadmeHasTheUnitsOfTheRoundsNumbers) {
  for (const RoundNumber& number : RoundNumbers()) {
    const std::string metric = NameIn(number, &RoundOutlets::metric);
    if (metric.empty()) continue;
    EXPECT_EQ(DocumentedUnit("aggserver_" + metric), number.unit) << metric;
  }
}

TEST(MetricsTest, ARoundSetsEachGauge) {
  Metrics metrics(Options(), Shard, Job);
  metrics.OnRound(Report());
  const Scrape scrape(metrics.Expose());
  const std::map<std::string, double> expected = {
      {"aggserver_loss", 0.75},
      {"aggserver_round_rows", 2},
      {"aggserver_gradient_diversity", 1.125},
      {"aggserver_pairwise_cosine_mean", 0.375},
      {"aggserver_pairwise_cosine_min", -0.125},
      {"aggserver_effective_rank", 1.75},
      {"aggserver_gradient_norm", 2.25},
      {"aggserver_clip_factor", 0.875},
      {"aggserver_summed_coefficient", 1.875},
      {"aggserver_scheduled_learning_rate", 0.05},
      {"aggserver_step_factor", 1.5},
      {"aggserver_learning_rate", 0.075},
      {"aggserver_gain_ratio", 1.625},
      {"aggserver_next_gain_ratio", 1.6875},
      {"aggserver_sigma2", 6.5},
      {"aggserver_sigma2_average", 7.5},
      {"aggserver_mu2_average", 8.5},
      {"aggserver_gradient_noise_scale", 644},
      {"aggserver_useful_workers", 184},
      {"aggserver_scale_invariant_iterations_total", 12.5},
      {"aggserver_examples_total", 7}};
  for (const auto& [name, value] : expected) {
    EXPECT_EQ(scrape.Value(name), value) << name;
  }
  EXPECT_TRUE(std::isnan(scrape.Value("aggserver_mu2")));
  EXPECT_EQ(scrape.Value("aggserver_rounds_total", "outcome=\"applied\""), 1);
  EXPECT_EQ(
      scrape.Value("aggserver_fallbacks_total", "kind=\"compensated_gram\""),
      1);
  EXPECT_EQ(scrape.Value("aggserver_fallbacks_total", "kind=\"adacons_mean\""),
            0);
}

TEST(MetricsTest, WorkersAndShadowsAreTold) {
  Metrics metrics(Options(), Shard, Job);
  metrics.OnRound(Report());
  const Scrape scrape(metrics.Expose());
  const std::string w1 = "worker=\"1\"";
  EXPECT_EQ(scrape.Value("aggserver_worker_coefficient", w1), 1.0625);
  EXPECT_EQ(scrape.Value("aggserver_adacons_coefficient", w1), 0.5625);
  EXPECT_EQ(scrape.Value("aggserver_worker_gradient_norm", w1), 4.5);
  EXPECT_EQ(scrape.Value("aggserver_worker_cosine_mean", w1), -0.25);
  EXPECT_EQ(scrape.Value("aggserver_worker_delay_seconds_total", w1), 0.125);
  // Two norms are too few for an outlier.
  EXPECT_TRUE(std::isnan(scrape.Value("aggserver_worker_outlier_score", w1)));
  EXPECT_EQ(scrape.Value("aggserver_shadow_cosine",
                         "shadow=\"0\",rule=\"mean\",scope=\"per_tensor\""),
            0.96875);
  EXPECT_EQ(scrape.Value("aggserver_shadow_norm",
                         "shadow=\"1\",rule=\"adacons\",scope=\"global\""),
            1.015625);
}

TEST(MetricsTest, TensorsAreTheLargestOnes) {
  MetricsOptions options = Options();
  options.max_tensors = 2;
  Metrics metrics(options, Shard, Job);
  metrics.SetTensors({{"a", 1}, {"b", 50}, {"c", 20}});
  metrics.OnRound(Report());
  const Scrape scrape(metrics.Expose());
  EXPECT_EQ(scrape.Count("aggserver_orthogonality"), 3);  // and the model
  EXPECT_EQ(scrape.Value("aggserver_orthogonality", "tensor=\"\""), 0.9375);
  EXPECT_EQ(scrape.Value("aggserver_orthogonality", "tensor=\"b\""), 0.625);
  EXPECT_TRUE(
      std::isnan(scrape.Value("aggserver_orthogonality", "tensor=\"c\"")));
  EXPECT_EQ(scrape.Value("aggserver_adasum_kappa", "tensor=\"\""), 31);
  EXPECT_EQ(scrape.Value("aggserver_adasum_kappa", "tensor=\"c\""), 30);
  // Gains of groups: the least, and that of each tensor that has one.
  EXPECT_EQ(scrape.Value("aggserver_group_gain_ratio", "tensor=\"\""), 3.5);
  EXPECT_EQ(scrape.Value("aggserver_group_gain_ratio", "tensor=\"b\""), 3.5);
  EXPECT_TRUE(
      std::isnan(scrape.Value("aggserver_group_gain_ratio", "tensor=\"c\"")));
  EXPECT_EQ(scrape.Value("aggserver_tensors"), 3);
}

TEST(MetricsTest, ANewManifestReplacesTheTensors) {
  Metrics metrics(Options(), Shard, Job);
  metrics.SetTensors({{"a", 1}, {"b", 50}});
  metrics.OnRound(Report());
  metrics.SetTensors({{"c", 1}});
  const Scrape scrape(metrics.Expose());
  EXPECT_EQ(scrape.Count("aggserver_orthogonality"), 2);
  EXPECT_TRUE(
      std::isnan(scrape.Value("aggserver_orthogonality", "tensor=\"c\"")));
  EXPECT_EQ(scrape.Value("aggserver_gain_ratio"), 1.625);
}

TEST(MetricsTest, NamesAreShownAsEverywhereAndEscaped) {
  MetricsOptions options = Options();
  options.version = "1\xFF";
  Metrics metrics(options, Shard, Job);
  metrics.SetTensors({{"a\"b\\c\nd", 1}});
  const std::string text = metrics.Expose();
  EXPECT_TRUE(absl::StrContains(text, "tensor=\"a\\\"b\\\\c\\\\nd\"} Nan\n"));
  EXPECT_TRUE(absl::StrContains(text, "version=\"1\\\\xff\""));
}

TEST(MetricsTest, PhasesMakeCumulativeBuckets) {
  Metrics metrics(Options(), Shard, Job);
  metrics.OnRound(Report());
  RoundReport slow = Report();
  slow.durations.gram = absl::Seconds(500);
  metrics.OnRound(slow);
  const Scrape scrape(metrics.Expose());
  const std::string name = "aggserver_round_duration_seconds";
  const std::string gram = "phase=\"gram\"";
  EXPECT_EQ(scrape.Value(name + "_count", gram), 2);
  EXPECT_EQ(scrape.Value(name + "_sum", gram), 500.003);
  EXPECT_EQ(scrape.Value(name + "_bucket", gram + ",le=\"0.0025\""), 0);
  EXPECT_EQ(scrape.Value(name + "_bucket", gram + ",le=\"100\""), 1);
  EXPECT_EQ(scrape.Value(name + "_bucket", gram + ",le=\"+Inf\""), 2);
  EXPECT_EQ(scrape.Value(name + "_count", "phase=\"norms\""), 0);
  EXPECT_EQ(scrape.Value("aggserver_round_seconds_count"), 2);
  EXPECT_EQ(scrape.Value("aggserver_round_seconds_sum"), 500.0444);
}

TEST(MetricsTest, TheJobIsSampledAtScrape) {
  JobStatus job = Job();
  const Metrics metrics(Options(), Shard,
                        [&job] { return std::make_optional(job); });
  const Scrape scrape(metrics.Expose());
  EXPECT_EQ(scrape.Value("aggserver_job_phase", "phase=\"open\""), 1);
  EXPECT_EQ(scrape.Value("aggserver_job_phase", "phase=\"closing\""), 0);
  EXPECT_EQ(scrape.Value("aggserver_round"), 41);
  EXPECT_EQ(scrape.Value("aggserver_job_version"), 41);
  EXPECT_EQ(scrape.Value("aggserver_workers_expected"), 2);
  EXPECT_EQ(scrape.Value("aggserver_workers_joined"), 3);
  EXPECT_EQ(scrape.Value("aggserver_workers_attending"), 2);
  EXPECT_EQ(scrape.Value("aggserver_workers_committed"), 1);
  EXPECT_EQ(scrape.Value("aggserver_workers_missing"), 0);
  EXPECT_EQ(scrape.Value("aggserver_workers_waited_for"), 2);
  EXPECT_EQ(scrape.Value("aggserver_longest_wait_seconds"), 2.5);
  EXPECT_EQ(scrape.Value("aggserver_worker_waited_for_seconds", "worker=\"1\""),
            1.5);
  EXPECT_EQ(scrape.Count("aggserver_worker_waited_for_seconds"), 2);
  EXPECT_EQ(scrape.Value("aggserver_round_timeout_seconds"), 4);
  EXPECT_EQ(scrape.Value("aggserver_worker_late_rows_total", "worker=\"1\""),
            12);
  EXPECT_EQ(scrape.Value("aggserver_worker_last_rows_total", "worker=\"1\""),
            40);
  EXPECT_EQ(scrape.Value("aggserver_worker_lateness_seconds", "worker=\"1\""),
            0.25);
  // Rank 90 is above metrics.max_workers.
  EXPECT_EQ(scrape.Count("aggserver_worker_late_rows_total"), 2);
  EXPECT_EQ(scrape.Value("aggserver_worker_late_rows_total", "worker=\"0\""),
            0);
  job.workers.resize(1);
  job.min_workers = 2;
  job.below_floor_for = absl::Seconds(9);
  job.consecutive_skipped_rounds = 7;
  job.failed = true;
  job.not_finite_rounds = 8;
  job.differing_ranks = {1, 4, 5};
  job.ended_workers = {{"left", 3}, {"evicted", 0}};
  job.rule_processes.resize(1);
  job.rule_processes[0].name = "mine";
  job.rule_processes[0].connected = true;
  job.rule_processes[0].missing_answers = 4;
  job.phase = JobPhase::kFinished;
  const Scrape lost(metrics.Expose());
  EXPECT_EQ(lost.Value("aggserver_workers_missing"), 1);
  EXPECT_EQ(lost.Value("aggserver_workers_floor"), 2);
  EXPECT_EQ(lost.Value("aggserver_consecutive_skipped_rounds"), 7);
  EXPECT_EQ(lost.Value("aggserver_job_failed"), 1);
  EXPECT_EQ(lost.Value("aggserver_not_finite_rounds"), 8);
  EXPECT_EQ(lost.Value("aggserver_differing_ranks"), 3);
  EXPECT_EQ(lost.Value("aggserver_below_floor_seconds"), 9);
  EXPECT_EQ(lost.Value("aggserver_rule_process_connected", "name=\"mine\""), 1);
  EXPECT_EQ(lost.Value("aggserver_rule_answers_total",
                       "name=\"mine\",answer=\"missing\""),
            4);
  EXPECT_EQ(lost.Value("aggserver_workers_ended_total", "reason=\"left\""), 3);
  EXPECT_EQ(lost.Value("aggserver_job_phase", "phase=\"finished\""), 1);
}

TEST(MetricsTest, TheShardIsSampledAtScrape) {
  const Metrics metrics(Options(), Shard, Job);
  const Scrape scrape(metrics.Expose());
  EXPECT_EQ(scrape.Value("aggserver_insecure"), 0);
  EXPECT_EQ(scrape.Value("aggserver_shards"), 5);
  EXPECT_EQ(scrape.Value("aggserver_attached"), 1);
  EXPECT_EQ(scrape.Value("aggserver_epoch"), 1700000000123456.0);
  EXPECT_EQ(scrape.Value("aggserver_version"), 41);
  EXPECT_EQ(scrape.Value("aggserver_slices"), 6);
  EXPECT_EQ(scrape.Value("aggserver_elements"), 4810);
  EXPECT_EQ(scrape.Value("aggserver_memory_planned_bytes"), 1000);
  EXPECT_EQ(scrape.Value("aggserver_memory_budget_bytes"), 2000);
  EXPECT_EQ(scrape.Value("aggserver_push_bytes_total"), 1099511627777.0);
  EXPECT_EQ(scrape.Value("aggserver_push_in_place_bytes_total"), 44);
  EXPECT_EQ(scrape.Value("aggserver_pull_in_place_bytes_total"), 33);
  EXPECT_EQ(scrape.Value("aggserver_duplicate_bytes_total"), 5);
  EXPECT_EQ(scrape.Value("aggserver_pull_bytes_total"), 77);
  EXPECT_EQ(scrape.Value("aggserver_crc_errors_total"), 2);
  EXPECT_EQ(scrape.Value("aggserver_revoked_snapshots_total"), 1);
  EXPECT_EQ(scrape.Value("aggserver_overtaken_pulls_total"), 10);
  EXPECT_EQ(scrape.Value("aggserver_backend_info", "backend=\"cpu\""), 1);
  EXPECT_EQ(scrape.Value("aggserver_combination_info",
                         "rule=\"adasum\",scope=\"per_tensor\","
                         "step_scale=\"adascale\""),
            1);
}

TEST(MetricsTest, AnotherCombinationEndsTheFormersSeries) {
  JobStatus job = Job();
  const Metrics metrics(Options(), Shard, [&] { return job; });
  job.combination = {"mean", "global", "none"};
  const Scrape scrape(metrics.Expose());
  EXPECT_EQ(scrape.Value("aggserver_combination_info",
                         R"(rule="mean",scope="global",step_scale="none")"),
            1);
  EXPECT_EQ(metrics.Expose().find("rule=\"adasum\",scope=\"per_tensor\","
                                  "step_scale=\"adascale\""),
            std::string::npos);
}

TEST(MetricsTest, TheEndOfARoundIsTimed) {
  Metrics metrics(Options(), Shard, Job);
  const std::string name = "aggserver_last_round_timestamp_seconds";
  EXPECT_TRUE(std::isnan(Scrape(metrics.Expose()).Value(name)));
  metrics.OnRound(Report());
  EXPECT_GT(Scrape(metrics.Expose()).Value(name), 1.7e9);
}

TEST(MetricsTest, NoBudgetIsInfinite) {
  const Metrics metrics(
      Options(), [] { return ShardStatus(); }, nullptr);
  EXPECT_EQ(Scrape(metrics.Expose()).Value("aggserver_memory_budget_bytes"),
            std::numeric_limits<double>::infinity());
}

TEST(MetricsTest, OtherShardsHaveNoSeriesOfTheJob) {
  MetricsOptions options = Options();
  options.ordinal = 3;
  options.insecure = true;
  const Metrics metrics(options, Shard, nullptr);
  const std::string text = metrics.Expose();
  EXPECT_TRUE(absl::StrContains(
      text, "aggserver_version{job=\"digits\",shard=\"3\"} 41\n"));
  EXPECT_TRUE(absl::StrContains(
      text, "aggserver_insecure{job=\"digits\",shard=\"3\"} 1\n"));
  EXPECT_FALSE(absl::StrContains(text, "aggserver_rounds_total"));
  EXPECT_FALSE(absl::StrContains(text, "aggserver_job_phase"));
}

}  // namespace
}  // namespace agg
