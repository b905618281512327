#include "server/metrics/status_families.h"

#include <sys/resource.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/base/call_counts.h"
#include "server/metrics/metrics.h"
#include "server/metrics/round_state.h"
#include "server/round/round_report.h"
#include "tests/server/metrics/samples.h"
#include "tests/server/metrics/scrape.h"

namespace agg {
namespace {

TEST(ProcessUsageTest, MemoryThatWasWrittenIsResident) {
  const double before = ReadProcessUsage().resident_bytes;
  constexpr size_t kBytes = size_t{64} << 20;
  const std::vector<char> block(kBytes, 1);
  const double after = ReadProcessUsage().resident_bytes;
  EXPECT_GT(before, 0.0);
  EXPECT_GT(after, before + 0.9 * kBytes);
  EXPECT_EQ(block.back(), 1);
}

TEST(ProcessUsageTest, TheAddressSpaceHoldsTheMemory) {
  const ProcessUsage usage = ReadProcessUsage();
  EXPECT_GE(usage.virtual_bytes, usage.resident_bytes);
}

TEST(ProcessUsageTest, AFileThatIsOpenedCounts) {
  const double before = ReadProcessUsage().open_files;
  EXPECT_GE(before, 0.0);
  {
    const std::ifstream one("/dev/null"), two("/dev/null");
    EXPECT_EQ(ReadProcessUsage().open_files, before + 2);
  }
  EXPECT_EQ(ReadProcessUsage().open_files, before);
}

TEST(ProcessUsageTest, TheLimitOfOpenFilesIsTheSoftOne) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit former = limit;
  limit.rlim_cur = 123;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(ReadProcessUsage().max_open_files, 123.0);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &former), 0);
}

TEST(ProcessUsageTest, WorkTakesCpuTime) {
  const double before = ReadProcessUsage().cpu_seconds;
  ASSERT_GE(before, 0.0);
  volatile double sum = 0.0;
  for (int i = 0; i < 50'000'000; ++i) sum = sum + i;
  EXPECT_GT(ReadProcessUsage().cpu_seconds, before);
}

TEST(ProcessUsageTest, StartedInThePastAndOnce) {
  const double start = ReadProcessUsage().start_time_seconds;
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  // Jiffies and the rounded boot time: a second each.
  EXPECT_LT(start, now + 2.0);
  EXPECT_GT(start, now - 3600.0);
  EXPECT_EQ(ReadProcessUsage().start_time_seconds, start);
}

// The series of survival, as a scrape shows them.

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
  options.checkpoint_every_rounds = 40;
  job.checkpoint.configured = true;
  job.checkpoint.writing = true;
  const Scrape first = scrape();
  EXPECT_TRUE(std::isnan(first.Value("aggserver_checkpoint_version")));
  EXPECT_TRUE(std::isnan(first.Value("aggserver_checkpoint_age_seconds")));
  EXPECT_EQ(first.Value("aggserver_checkpoint_interval_seconds"), 600);
  EXPECT_EQ(first.Value("aggserver_checkpoint_every_rounds"), 40);
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

// Each series of status_families.h has its own number.

TEST(TransportFamiliesTest, LinksAreCountedByTransport) {
  const Metrics metrics(Options(), Shard, Job);
  const Scrape scrape(metrics.Expose());
  const auto links = [&scrape](const std::string& transport) {
    return scrape.Value("aggserver_worker_links",
                        absl::StrCat("transport=\"", transport, "\""));
  };
  EXPECT_EQ(links("shm"), 6);
  EXPECT_EQ(links("unix"), 1);
  EXPECT_EQ(links("tcp"), 1);
  EXPECT_EQ(links("cuda"), 1);
  EXPECT_EQ(links("other"), 1);
  // Five shards of the worker that has not said it.
  EXPECT_EQ(links("unknown"), 5);
}

TEST(TransportFamiliesTest, FallbacksAreCountedByUseAndReason) {
  const Metrics metrics(Options(), Shard, Job);
  const Scrape scrape(metrics.Expose());
  const auto fallbacks = [&scrape](const std::string& use,
                                   const std::string& reason) {
    return scrape.Value(
        "aggserver_shared_memory_fallbacks_total",
        absl::StrCat("use=\"", use, "\",reason=\"", reason, "\""));
  };
  EXPECT_EQ(fallbacks("rows", "refused"), 3);
  EXPECT_EQ(fallbacks("rows", "no_memory"), 4);
  EXPECT_EQ(fallbacks("versions", "refused"), 6);
  EXPECT_EQ(fallbacks("versions", "no_memory"), 7);
}

TEST(TransportFamiliesTest, StagedBuffersAreCountedByUse) {
  const Metrics metrics(Options(), Shard, Job);
  const Scrape scrape(metrics.Expose());
  EXPECT_EQ(scrape.Value("aggserver_staged_buffers_total", "use=\"rows\""), 8);
  EXPECT_EQ(scrape.Value("aggserver_staged_buffers_total", "use=\"versions\""),
            9);
}

// The series that every process has besides those of its shard: of its calls,
// and of itself.

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

TEST(ProcessMetricsTest, WhatAProcessSaysOfItself) {
  ProcessState state;
  const Metrics metrics(
      Options(), [] { return ShardStatus(); }, nullptr, nullptr, nullptr,
      nullptr, nullptr, [&] { return state; });
  const Scrape before(metrics.Expose());
  EXPECT_EQ(before.Value("aggserver_stopping"), 0);
  EXPECT_EQ(before.Value("aggserver_memory_limit_bytes"), 0);
  EXPECT_EQ(before.Value("aggserver_audit_errors_total"), 0);
  state.stopping = true;
  state.memory_limit_bytes = int64_t{3} << 30;
  state.audit_errors = 7;
  const Scrape after(metrics.Expose());
  EXPECT_EQ(after.Value("aggserver_stopping"), 1);
  EXPECT_EQ(after.Value("aggserver_memory_limit_bytes"), 3221225472.0);
  EXPECT_EQ(after.Value("aggserver_audit_errors_total"), 7);
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
