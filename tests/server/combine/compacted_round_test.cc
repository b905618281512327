#include "server/combine/compacted_round.h"

#include <limits>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

GramMatrix Packed(std::vector<double> hi) {
  int num_rows = 0;
  while (num_rows * (num_rows + 1) / 2 < static_cast<int>(hi.size())) {
    ++num_rows;
  }
  return GramMatrix::FromPacked(num_rows, std::move(hi), {});
}

std::vector<RowInfo> Rows(int num_rows) {
  std::vector<RowInfo> rows(num_rows);
  for (int i = 0; i < num_rows; ++i) rows[i].rank = 10 + i;
  return rows;
}

TEST(CompactedRoundTest, KeepsFiniteRowsAndRemovesLossScales) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<RowInfo> rows = Rows(3);
  rows[2].loss_scale = 2.0;
  const CompactedRound round = CompactRound(
      rows, {Packed({1, 2, 3, 4, 5, 8}), Packed({1, nan, 3, nan, nan, 8})});
  EXPECT_EQ(round.num_committed, 3u);
  EXPECT_EQ(round.num_tensors, 2u);
  EXPECT_THAT(round.kept, ElementsAre(0, 2));
  EXPECT_THAT(round.excluded_ranks, ElementsAre(11));
  ASSERT_EQ(round.tensors.size(), 2u);
  for (const GramMatrix& gram : round.tensors) {
    EXPECT_EQ(gram(0, 0), 1.0);
    EXPECT_EQ(gram(0, 1), 1.5);
    EXPECT_EQ(gram(1, 1), 2.0);
  }
  EXPECT_EQ(round.total(1, 1), 4.0);
}

// What a loss scale leaves of a row must not pass for a row of zeros.
TEST(CompactedRoundTest, ARowThatItsLossScaleMakesVanishIsExcluded) {
  std::vector<RowInfo> rows = Rows(3);
  rows[1].loss_scale = 0x1p255;
  const auto kept = [&rows](double norm_squared) {
    return CompactRound(rows, {Packed({1, 0, 0, norm_squared, 0, 1})}).kept;
  };
  EXPECT_THAT(kept(1.0), ElementsAre(0, 1, 2));  // 2^-510
  EXPECT_THAT(kept(0.25), ElementsAre(0, 2));    // 2^-512
  EXPECT_THAT(kept(0.0), ElementsAre(0, 1, 2));  // it is one of zeros
  rows[1].loss_scale = 1.0;
  EXPECT_THAT(kept(0x1p-298), ElementsAre(0, 1, 2));
}

// Each of its tensors is finite, and the norm of all is not.
TEST(CompactedRoundTest, ARowWhoseNormOverflowsIsExcluded) {
  const std::vector<GramMatrix> tensors = {Packed({1, 1, 0, 1e308, 0, 4}),
                                           Packed({1, 1, 0, 1e308, 0, 4})};
  const CompactedRound plain = CompactRound(Rows(3), tensors);
  EXPECT_THAT(plain.kept, ElementsAre(0, 2));
  EXPECT_THAT(plain.excluded_ranks, ElementsAre(11));
  EXPECT_EQ(plain.total(1, 1), 8.0);
  std::vector<RowInfo> rows = Rows(3);
  rows[2].loss_scale = 0.5e-153;  // 4 * 4e306, twice
  EXPECT_THAT(CompactRound(rows, tensors).kept, ElementsAre(0, 2));
  rows[2].loss_scale = 0.2e-153;  // 4 * 2.5e307, twice
  EXPECT_THAT(CompactRound(rows, tensors).kept, ElementsAre(0));
}

// As if the Gram matrices had NaN for the rows that are not there.
TEST(CompactedRoundTest, RowsThatAreNotPresentAreExcluded) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<RowInfo> rows = Rows(4);
  const CompactedRound round =
      CompactRound(rows, {0, 2, 3}, {Packed({1, 2, 3, nan, nan, 6})});
  EXPECT_THAT(round.kept, ElementsAre(0, 3));
  EXPECT_THAT(round.excluded_ranks, ElementsAre(11, 12));
  EXPECT_EQ(round.num_committed, 4u);
  EXPECT_EQ(round.tensors[0](0, 1), 3.0);
  EXPECT_EQ(round.tensors[0](1, 1), 6.0);
}

TEST(CompactedRoundTest, WithoutAKeptRowThereAreNoMatrices) {
  const CompactedRound round = CompactRound(Rows(2), {}, {GramMatrix(0)});
  EXPECT_THAT(round.kept, IsEmpty());
  EXPECT_THAT(round.tensors, IsEmpty());
  EXPECT_EQ(round.num_tensors, 1u);
  EXPECT_THAT(round.excluded_ranks, ElementsAre(10, 11));
}

TEST(CompactedRoundTest, ReplacesTensorsByOthersOfTheSameRows) {
  std::vector<RowInfo> rows = Rows(3);
  rows[0].loss_scale = 0.5;
  CompactedRound round =
      CompactRound(rows, {0, 2}, {Packed({1, 2, 3}), Packed({10, 20, 30})});
  GramMatrix compensated(2, true);
  compensated.Set(0, 0, 5.0, 1e-20);
  compensated.Set(1, 1, 7.0);
  std::vector<GramMatrix> grams;
  grams.push_back(compensated);
  ReplaceTensors({0, 2}, {1}, std::move(grams), &round);
  EXPECT_EQ(round.tensors[0](0, 0), 4.0);
  EXPECT_TRUE(round.tensors[1].compensated());
  EXPECT_EQ(round.tensors[1](0, 0), 20.0);
  EXPECT_NEAR(round.tensors[1].lo(0, 0), 4e-20, 1e-30);
  EXPECT_FALSE(round.total.compensated());  // tensor 0 is not
  EXPECT_EQ(round.total(0, 0), 24.0);
  EXPECT_EQ(round.total(1, 1), 10.0);
}

}  // namespace
}  // namespace agg
