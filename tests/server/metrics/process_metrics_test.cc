// The series that every process has besides those of its shard: of its calls,
// and of itself.
#include <cmath>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/base/call_counts.h"
#include "server/metrics/metrics.h"
#include "server/round/round_report.h"
#include "tests/server/metrics/samples.h"
#include "tests/server/metrics/scrape.h"

namespace agg {
namespace {

TEST(ProcessMetricsTest, CallsByMethodAndCode) {
  const Metrics metrics(
      Options(), [] { return ShardStatus(); }, nullptr, nullptr,
      [] {
        return std::vector<CallCount>{{"agg.v1.Shard/Pull", "OK", 5},
                                      {"agg.v1.Shard/Pull", "ABORTED", 2}};
      });
  const Scrape scrape(metrics.Expose());
  EXPECT_EQ(scrape.Count("aggserver_grpc_calls_total"), 2);
  EXPECT_EQ(scrape.Value("aggserver_grpc_calls_total",
                         "method=\"agg.v1.Shard/Pull\",code=\"ABORTED\""),
            2);
}

TEST(ProcessMetricsTest, RefusalsByReason) {
  DenialCounts denials;
  denials.set_num_identities(3);
  denials.Add(DenialReason::kBadToken);
  denials.Add(DenialReason::kBadToken);
  const Metrics metrics(
      Options(), [] { return ShardStatus(); }, nullptr, nullptr, nullptr,
      [&] { return &denials; });
  const Scrape scrape(metrics.Expose());
  EXPECT_EQ(scrape.Value("aggserver_identities"), 3);
  EXPECT_EQ(scrape.Count("aggserver_denied_total"),
            static_cast<int>(kNumDenialReasons));
  EXPECT_EQ(scrape.Value("aggserver_denied_total", "reason=\"bad_token\""), 2);
  EXPECT_EQ(scrape.Value("aggserver_denied_total", "reason=\"role\""), 0);
}

TEST(ProcessMetricsTest, CertificatesHaveAnEnd) {
  const Metrics metrics(
      Options(), [] { return ShardStatus(); }, nullptr, nullptr, nullptr,
      nullptr,
      [] {
        return std::vector<CertificateExpiry>{
            {"certificate", absl::FromUnixSeconds(1800000000)},
            {"client_ca", absl::InfiniteFuture()}};
      });
  const Scrape scrape(metrics.Expose());
  constexpr char kName[] = "aggserver_certificate_expiry_timestamp_seconds";
  EXPECT_EQ(scrape.Value(kName, "file=\"certificate\""), 1800000000);
  EXPECT_TRUE(std::isnan(scrape.Value(kName, "file=\"client_ca\"")));
}

TEST(ProcessMetricsTest, TheProcessIsSampledAtScrape) {
  const Metrics metrics(Options(), Shard, Job);
  const Scrape scrape(metrics.Expose());
  EXPECT_GT(scrape.Value("aggserver_memory_resident_bytes"), 1 << 20);
  EXPECT_GE(scrape.Value("aggserver_cpu_seconds_total"), 0);
  EXPECT_GT(scrape.Value("aggserver_start_time_seconds"), 1.7e9);
}

// The names that every Prometheus client library gives its process.
TEST(ProcessMetricsTest, TheProcessHasTheStandardNames) {
  const Metrics metrics(Options(), Shard, Job);
  const Scrape scrape(metrics.Expose());
  EXPECT_GE(scrape.Value("process_cpu_seconds_total"), 0);
  EXPECT_EQ(scrape.types.at("process_cpu_seconds_total"), "counter");
  EXPECT_GT(scrape.Value("process_resident_memory_bytes"), 1 << 20);
  EXPECT_GE(scrape.Value("process_virtual_memory_bytes"),
            scrape.Value("process_resident_memory_bytes"));
  EXPECT_GE(scrape.Value("process_open_fds"), 0);
  EXPECT_GT(scrape.Value("process_max_fds"), scrape.Value("process_open_fds"));
  EXPECT_GT(scrape.Value("process_start_time_seconds"), 1.7e9);
}

}  // namespace
}  // namespace agg
