#include <sys/resource.h>

#include <cstddef>
#include <fstream>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/metrics/status_families.h"

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

}  // namespace
}  // namespace agg
