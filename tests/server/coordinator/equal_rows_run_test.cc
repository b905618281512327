#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/coordinator/round_watches.h"

namespace agg {
namespace {

bool Note(EqualRowsRun* run, std::vector<std::vector<int32_t>> ranks,
          bool applied = true) {
  RoundReport report;
  report.applied = applied;
  report.decision.equal_ranks = std::move(ranks);
  return run->Note(report);
}

TEST(EqualRowsRunTest, SaysItOnceAndNotAtFirst) {
  EqualRowsRun run;
  EXPECT_FALSE(Note(&run, {{0, 1}}));
  EXPECT_FALSE(Note(&run, {{0, 1}}));
  EXPECT_FALSE(Note(&run, {}));
  EXPECT_FALSE(Note(&run, {{0, 1}}));
  EXPECT_FALSE(Note(&run, {{0, 1}}));
  EXPECT_FALSE(Note(&run, {}, /*applied=*/false));  // it breaks no run
  EXPECT_TRUE(Note(&run, {{0, 1}}));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(Note(&run, {{0, 1}}));
  EXPECT_FALSE(Note(&run, {}));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(Note(&run, {{0, 1}}));
  EXPECT_FALSE(Note(&run, {{0, 1}, {2, 3}}));
  EXPECT_FALSE(Note(&run, {{0, 1}, {2, 3}}));
  EXPECT_TRUE(Note(&run, {{0, 1}, {2, 3}}));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(Note(&run, {}));
}

}  // namespace
}  // namespace agg
