#include "server/coordinator/round_engine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// "a" is slices 0 to 2, "b" has no elements, "c" is slice 3.
ShardPlan Plan() {
  Manifest manifest;
  manifest.tensors = {{"a", {2 * kMaxSliceElements + 1}, "", false},
                      {"b", {0}, "", false},
                      {"c", {3}, "", false}};
  return *MakeShardPlan(manifest, 2);
}

// Entries whose sum depends on the order of the terms.
SliceGram Gram(int32_t slice) {
  const double thirds = slice + 1.0 / 3.0;
  return {slice, {thirds, 1e16 / (slice + 1), -thirds}, {}};
}

TEST(GramSumsTest, HasTheSameBitsInAnyOrderOfArrival) {
  const ShardPlan plan = Plan();
  std::vector<int32_t> order = {0, 1, 2, 3};
  do {
    GramSums sums(plan, {0, 1, 2}, 2, /*compensated=*/false);
    for (const int32_t slice : order) sums.Add(Gram(slice));
    const auto grams = sums.Take();
    ASSERT_TRUE(grams.ok()) << grams.status();
    ASSERT_EQ(grams->size(), 3u);
    for (int k = 0; k < 3; ++k) {
      const int i = k == 2 ? 1 : 0;
      const int j = k == 0 ? 0 : 1;
      EXPECT_EQ((*grams)[0](i, j),
                0.0 + Gram(0).hi[k] + Gram(1).hi[k] + Gram(2).hi[k]);
      EXPECT_EQ((*grams)[2](i, j), Gram(3).hi[k]);
      EXPECT_EQ((*grams)[1](i, j), 0.0);
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(GramSumsTest, ASumIsNeverMinusZero) {
  const ShardPlan plan = Plan();
  GramSums sums(plan, {2}, 1, /*compensated=*/false);
  sums.Add({3, {-0.0}, {}});
  EXPECT_FALSE(std::signbit((*sums.Take())[0](0, 0)));
}

TEST(GramSumsTest, AddsLowParts) {
  const ShardPlan plan = Plan();
  GramSums sums(plan, {0}, 1, /*compensated=*/true);
  for (const int32_t slice : {2, 0, 1}) sums.Add({slice, {1.0}, {1e-20}});
  const auto grams = sums.Take();
  ASSERT_TRUE(grams.ok()) << grams.status();
  EXPECT_EQ((*grams)[0](0, 0), 3.0);
  EXPECT_DOUBLE_EQ((*grams)[0].lo(0, 0), 3e-20);
}

TEST(GramSumsTest, NamesTheSliceThatIsMissingOrMisshapen) {
  const ShardPlan plan = Plan();
  GramSums sums(plan, {0, 2}, 2, /*compensated=*/false);
  sums.Add(Gram(0));
  sums.Add({1, {1.0}, {}});  // of one row
  sums.Add(Gram(2));
  sums.Add(Gram(3));
  const absl::Status status = sums.Take().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the partial Gram of slice 1, shard "));
}

TEST(GramSumsTest, IgnoresWhatNobodyAskedForAndRepeats) {
  const ShardPlan plan = Plan();
  GramSums sums(plan, {2}, 2, /*compensated=*/false);
  for (const int32_t slice : {-1, 0, 4, 3, 3}) sums.Add(Gram(slice));
  const auto grams = sums.Take();
  ASSERT_TRUE(grams.ok()) << grams.status();
  EXPECT_EQ((*grams)[0](0, 0), Gram(3).hi[0]);
}

// With threads: 600 tensors of 64 rows are more than what one does at once.
class OrthogonalityTaskTest : public testing::TestWithParam<int> {
 protected:
  OrthogonalityTaskTest() {
    std::vector<Rows> tensors;
    for (int t = 0; t < GetParam(); ++t) {
      tensors.push_back(LcgRows(static_cast<uint32_t>(t) + 1, 64, 5));
    }
    input_ = MakeRound(tensors);
  }

  RoundInput input_;
};

TEST_P(OrthogonalityTaskTest, CompletesADecisionToThatOfDecide) {
  for (const char* rule : {"mean", "adasum", "adasum_counted", "adacons"}) {
    for (const Scope scope : {Scope::kPerTensor, Scope::kGlobal}) {
      CombineOptions options = MakeOptions(rule);
      options.rule.scope = scope;
      const CompactedRound round = CompactRound(input_.rows, input_.tensors);
      Decision decision = DecideCoefficients(options, {}, 0, round);
      OrthogonalityTask task(options.rule, round, decision);
      task.Finish(&decision);
      EXPECT_FALSE(decision.lacks_orthogonality);
      const Decision expected = Decide(options, {}, input_);
      EXPECT_EQ(decision.coefficients, expected.coefficients);
      EXPECT_EQ(decision.orthogonality, expected.orthogonality);
      ASSERT_EQ(decision.tensors.size(), expected.tensors.size());
      for (size_t t = 0; t < expected.tensors.size(); ++t) {
        EXPECT_EQ(decision.tensors[t].orthogonality,
                  expected.tensors[t].orthogonality);
        EXPECT_EQ(decision.tensors[t].kappa, expected.tensors[t].kappa);
      }
    }
  }
}

TEST_P(OrthogonalityTaskTest, OnlyPlainAdasumPerTensorHasItAnyway) {
  const CompactedRound round = CompactRound(input_.rows, input_.tensors);
  EXPECT_TRUE(DecideCoefficients(MakeOptions("mean"), {}, 0, round)
                  .lacks_orthogonality);
  CombineOptions adasum = MakeOptions("adasum");
  adasum.rule.scope = Scope::kPerTensor;
  EXPECT_FALSE(DecideCoefficients(adasum, {}, 0, round).lacks_orthogonality);
}

TEST_P(OrthogonalityTaskTest, LeavesARoundWithoutRowsUndefined) {
  CompactedRound nothing;
  nothing.num_tensors = 3;
  Decision decision = DecideCoefficients(MakeOptions("mean"), {}, 0, nothing);
  OrthogonalityTask task(MakeOptions("mean").rule, nothing, decision);
  task.Finish(&decision);
  EXPECT_TRUE(std::isnan(decision.orthogonality));
  EXPECT_EQ(decision.tensors.size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(Tensors, OrthogonalityTaskTest,
                         testing::Values(1, 17, 600));

TEST(TrustRatioTest, IsThePapers) {
  OptimizerOptions lars;
  lars.kind = OptimizerKind::kLars;
  lars.trust_coefficient = 0.5f;
  lars.epsilon = 0.0f;
  EXPECT_FLOAT_EQ(TrustRatio(lars, 0.25, {16.0, 4.0}),
                  0.5 * 4.0 / (2.0 + 0.25 * 4.0));
  OptimizerOptions lamb;
  lamb.kind = OptimizerKind::kLamb;
  EXPECT_FLOAT_EQ(TrustRatio(lamb, 0.25, {16.0, 4.0}), 2.0);
  EXPECT_EQ(TrustRatio(OptimizerOptions(), 0.0, {16.0, 4.0}), 1.0f);
}

TEST(TrustRatioTest, IsOneWhereANormIsZeroOrNotANumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (OptimizerKind kind : {OptimizerKind::kLars, OptimizerKind::kLamb}) {
    OptimizerOptions optimizer;
    optimizer.kind = kind;
    EXPECT_EQ(TrustRatio(optimizer, 0.0, {0.0, 4.0}), 1.0f);
    EXPECT_EQ(TrustRatio(optimizer, 0.0, {4.0, 0.0}), 1.0f);
    EXPECT_EQ(TrustRatio(optimizer, 0.0, {nan, 1.0}), 1.0f);
    EXPECT_EQ(TrustRatio(optimizer, 0.0, {1.0, nan}), 1.0f);
  }
}

// Infinity times an update of nearly nothing would not be finite.
TEST(TrustRatioTest, IsOneWhereItDoesNotFitFloat32) {
  OptimizerOptions lamb;
  lamb.kind = OptimizerKind::kLamb;
  EXPECT_EQ(TrustRatio(lamb, 0.0, {1.0, 1e-78}), 1.0f);
  EXPECT_FLOAT_EQ(TrustRatio(lamb, 0.0, {1.0, 1e-76}), 1e38f);
}

// What is said of a round whose tensors have different rows.

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
