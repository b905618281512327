// What is said of a round whose tensors have different rows.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/round_engine.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<RowInfo> Rows() {
  std::vector<RowInfo> rows(3);
  rows[0].rank = 2;
  rows[1].rank = 4;
  rows[2].rank = 7;
  return rows;
}

// G(i, j) = 10 * rows[i] + rows[j] + 100, for rows ascending.
GramMatrix GramOf(const std::vector<int>& rows) {
  GramMatrix gram(static_cast<int>(rows.size()));
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = i; j < rows.size(); ++j) {
      gram.Set(static_cast<int>(i), static_cast<int>(j),
               100 + 10 * rows[i] + rows[j]);
    }
  }
  return gram;
}

TEST(WavedRoundTest, WholeRowsAreTheRound) {
  WavedRound round(3);
  round.Add({0, 1, 2}, {0, 1, 2}, GramOf({0, 1, 2}), "");
  round.Add({0, 1, 2}, {0, 1, 2}, GramOf({0, 1, 2}), "");
  EXPECT_EQ(round.num_unchanged(), 0u);
  EXPECT_THAT(round.PartialRows(Rows()), IsEmpty());
  const CompactedRound whole = round.TakeWhole(Rows());
  EXPECT_THAT(whole.kept, ElementsAre(0, 1, 2));
  EXPECT_EQ(whole.num_tensors, 2u);
  EXPECT_EQ(whole.total(1, 2), 2 * 112.0);
}

TEST(WavedRoundTest, ARowThatSomeTensorsLackIsNamedAndNotInTheNumbers) {
  WavedRound round(3);
  round.Add({0, 1, 2}, {0, 1, 2}, GramOf({0, 1, 2}), "");
  round.Add({0, 1, 2}, {0, 2}, GramOf({0, 1, 2}), "");  // one is not finite
  round.Add({0, 2}, {0, 2}, GramOf({0, 2}), "");        // and one is gone
  const std::vector<PartialRow> partial = round.PartialRows(Rows());
  ASSERT_EQ(partial.size(), 1u);
  EXPECT_EQ(partial[0].rank, 4);
  EXPECT_EQ(partial[0].num_tensors, 1);
  EXPECT_EQ(partial[0].of, 3);
  const CompactedRound whole = round.TakeWhole(Rows());
  EXPECT_THAT(whole.kept, ElementsAre(0, 2));
  EXPECT_THAT(whole.excluded_ranks, ElementsAre(4));
  EXPECT_EQ(whole.total(0, 1), 3 * 102.0);
}

TEST(WavedRoundTest, TensorsWithoutARowAreCounted) {
  WavedRound round(3);
  round.Add({0, 1, 2}, {}, GramOf({0, 1, 2}), "every row is bad");
  round.Add({}, {}, GramMatrix(), "no row has it");
  EXPECT_EQ(round.num_unchanged(), 2u);
  EXPECT_EQ(round.why_unchanged(), "every row is bad");
  EXPECT_EQ(round.PartialRows(Rows()).size(), 3u);
  const CompactedRound whole = round.TakeWhole(Rows());
  EXPECT_THAT(whole.kept, IsEmpty());
  EXPECT_EQ(whole.num_tensors, 2u);
  EXPECT_EQ(whole.num_committed, 3u);
}

}  // namespace
}  // namespace agg
