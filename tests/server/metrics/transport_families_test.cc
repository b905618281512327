// Each series of status_families.h has its own number.
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/metrics/metrics.h"
#include "server/metrics/status_families.h"
#include "tests/server/metrics/samples.h"
#include "tests/server/metrics/scrape.h"

namespace agg {
namespace {

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

}  // namespace
}  // namespace agg
