// The series of survival, as a scrape shows them.
#include <cmath>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/metrics/metrics.h"
#include "server/metrics/round_state.h"
#include "server/metrics/status_families.h"
#include "server/round/round_report.h"
#include "tests/server/metrics/samples.h"
#include "tests/server/metrics/scrape.h"

namespace agg {
namespace {

TEST(SurvivalFamiliesTest,
     CheckpointsAreZeroWithoutAPathAndUnknownBeforeTheFirst) {
  JobStatus job = Job();
  MetricsOptions options = Options();
  const auto scrape = [&] {
    const Metrics metrics(options, Shard,
                          [&job] { return std::make_optional(job); });
    return Scrape(metrics.Expose());
  };
  const Scrape without = scrape();
  for (const char* name :
       {"version", "age_seconds", "interval_seconds", "writing", "sealed_total",
        "failed_total", "skipped_total"}) {
    EXPECT_EQ(without.Value(std::string("aggserver_checkpoint_") + name), 0)
        << name;
  }
  options.checkpoint_every_seconds = 600.0;
  job.checkpoint.configured = true;
  job.checkpoint.writing = true;
  const Scrape first = scrape();
  EXPECT_TRUE(std::isnan(first.Value("aggserver_checkpoint_version")));
  EXPECT_TRUE(std::isnan(first.Value("aggserver_checkpoint_age_seconds")));
  EXPECT_EQ(first.Value("aggserver_checkpoint_interval_seconds"), 600);
  EXPECT_EQ(first.Value("aggserver_checkpoint_writing"), 1);
  job.checkpoint.made = 5;
  job.checkpoint.version = 0;  // of the seed
  job.checkpoint.age = absl::Seconds(2.5);
  job.checkpoint.num_sealed = 3;
  job.checkpoint.num_failed = 4;
  job.checkpoint.num_skipped = 6;
  const Scrape later = scrape();
  EXPECT_EQ(later.Value("aggserver_checkpoint_version"), 0);
  EXPECT_EQ(later.Value("aggserver_checkpoint_age_seconds"), 2.5);
  EXPECT_EQ(later.Value("aggserver_checkpoint_sealed_total"), 3);
  EXPECT_EQ(later.Value("aggserver_checkpoint_failed_total"), 4);
  EXPECT_EQ(later.Value("aggserver_checkpoint_skipped_total"), 6);
}

TEST(SurvivalFamiliesTest, CopiesAndRecoveries) {
  JobStatus job = Job();
  MetricsOptions options = Options();
  options.replicated = true;
  const Metrics metrics(options, Shard,
                        [&job] { return std::make_optional(job); });
  const Scrape before(metrics.Expose());
  EXPECT_EQ(before.Value("aggserver_recovering"), 0);
  EXPECT_EQ(before.Value("aggserver_replication_configured"), 1);
  EXPECT_EQ(before.Value("aggserver_replicated"), 0);
  EXPECT_EQ(before.Value("aggserver_history"), 0);
  job.recovering = "shard 1 is not reached";
  job.replicated = true;
  job.rewinds = 2;
  job.history = 1700000000123456;
  const Scrape after(metrics.Expose());
  EXPECT_EQ(after.Value("aggserver_recovering"), 1);
  EXPECT_EQ(after.Value("aggserver_replicated"), 1);
  EXPECT_EQ(after.Value("aggserver_rewinds_total"), 2);
  EXPECT_EQ(after.Value("aggserver_history"), 1700000000123456.0);
}

}  // namespace
}  // namespace agg
