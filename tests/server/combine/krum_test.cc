#include "server/combine/krum.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/combine/options.h"
#include "tests/reference/combination_rules.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Gt;
using testing::Lt;

// On a line, so that distances are easily seen.
Rows Line(const std::vector<double>& places) {
  Rows rows;
  for (const double place : places) rows.push_back({place});
  return rows;
}

struct Combined {
  std::vector<double> weights;
  RuleResult result;
};

template <typename RuleClass>
Combined Combine(const GramMatrix& gram, KrumOptions krum) {
  const std::vector<double> examples(gram.num_rows(), 1.0);
  RuleOptions options;
  options.krum = krum;
  Combined combined;
  combined.weights.resize(gram.num_rows());
  RuleState state;
  combined.result = RuleClass().Combine(
      {gram, examples, options.adacons, options.krum, options.geometric_median},
      &state, absl::MakeSpan(combined.weights));
  return combined;
}

std::vector<double> Krum(const Rows& rows, int byzantine) {
  return Combine<KrumRule>(MakeGram(rows), {byzantine, 0}).weights;
}

std::vector<double> MultiKrum(const Rows& rows, int byzantine, int selected) {
  return Combine<MultiKrumRule>(MakeGram(rows), {byzantine, selected}).weights;
}

// P = 5, f = 1: two neighbours. Scores: 0: 1+9, 1: 1+4, 3: 4+1, 4: 1+9, 100.
TEST(KrumTest, TakesTheRowWithTheNearestNeighbours) {
  EXPECT_THAT(Krum(Line({100, 0, 1, 3, 4}), 1), ElementsAre(0, 0, 1, 0, 0));
  EXPECT_THAT(Krum(Line({0, 2, 2.5, 100, 3}), 1), ElementsAre(0, 0, 1, 0, 0));
}

TEST(KrumTest, EqualScoresGoByRow) {
  EXPECT_THAT(Krum(Line({7, 7, 7, 7, 7}), 1), ElementsAre(1, 0, 0, 0, 0));
  EXPECT_THAT(Krum(Line({0, 0, 0, 0, 0}), 1), ElementsAre(1, 0, 0, 0, 0));
  EXPECT_THAT(Krum(Line({5, 9}), 0), ElementsAre(1, 0));
  EXPECT_THAT(Krum(Line({5}), 0), ElementsAre(1));
}

TEST(MultiKrumTest, AveragesTheBest) {
  const Rows rows = Line({100, 0, 1, 3, 4});
  EXPECT_THAT(MultiKrum(rows, 1, 1), ElementsAre(0, 0, 1, 0, 0));
  EXPECT_THAT(MultiKrum(rows, 1, 2), ElementsAre(0, 0, 0.5, 0.5, 0));
  EXPECT_THAT(MultiKrum(rows, 1, 0), ElementsAre(0, 0.25, 0.25, 0.25, 0.25));
  EXPECT_THAT(MultiKrum(rows, 1, 5), ElementsAre(0, 0.25, 0.25, 0.25, 0.25))
      << "more than P - f would take in a byzantine row";
  EXPECT_THAT(MultiKrum(Line({3, 4}), 0, 0), ElementsAre(0.5, 0.5));
  EXPECT_THAT(MultiKrum(Line({3}), 0, 0), ElementsAre(1));
}

// P = 4 allows f = 0: two neighbours instead of one.
TEST(KrumTest, FewerRowsThanItsGuaranteeNeedsAreSaid) {
  const GramMatrix gram = MakeGram(Line({100, 0, 1, 3}));
  const Combined few = Combine<KrumRule>(gram, {1, 0});
  EXPECT_TRUE(few.result.short_of_rows);
  EXPECT_THAT(few.weights, ElementsAre(0, 0, 1, 0));
  EXPECT_FALSE(Combine<KrumRule>(gram, {0, 0}).result.short_of_rows);
  const GramMatrix enough = MakeGram(Line({100, 0, 1, 3, 4}));
  EXPECT_FALSE(Combine<KrumRule>(enough, {1, 0}).result.short_of_rows);
  EXPECT_TRUE(Combine<MultiKrumRule>(enough, {2, 0}).result.short_of_rows);
  EXPECT_EQ(ComputeKrumScores(enough, 7, 0).byzantine_rows, 1);
}

TEST(KrumTest, ScoresAreThoseOfTheVectors) {
  for (int num_rows = 1; num_rows <= 20; ++num_rows) {
    for (int byzantine = 0; 2 * byzantine + 3 <= num_rows; ++byzantine) {
      const Rows rows = NormalRows(40 + num_rows, num_rows, 31);
      const reference::Vector scores = reference::KrumScores(rows, byzantine);
      const KrumScores actual = ComputeKrumScores(MakeGram(rows), byzantine, 1);
      for (int k = 1; k < num_rows; ++k) {
        EXPECT_LE(scores[actual.order[k - 1]],
                  scores[actual.order[k]] * (1 + 1e-12L))
            << num_rows << " rows, f = " << byzantine;
      }
      EXPECT_THAT(actual.kappa, Gt(1.0));
      EXPECT_THAT(actual.kappa, Lt(1e3));
    }
  }
}

// Six rows of which five differ by `noise` alone, around 1.
Rows Close(double noise) {
  Rows rows = NormalRows(9, 6, 200);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (double& value : rows[i]) value = 1.0 + (i == 5 ? 1.0 : noise) * value;
  }
  return rows;
}

TEST(KrumTest, KappaIsWhatDistancesCancelBy) {
  // ||g||^2 beside noise^2 * 200 for each of two rows, four times.
  EXPECT_NEAR(ComputeKrumScores(MakeGram(Close(1e-3)), 1, 1).kappa, 2e6, 1e6);
  EXPECT_THAT(ComputeKrumScores(MakeGram(Close(1e-6)), 1, 1).kappa, Gt(1e11));
}

// A row far from the rest, and thus with large terms, does not ask for more
// digits; a cluster that is far away and might be the best does.
TEST(KrumTest, KappaLooksAtWhatMayBeSelected) {
  Rows rows = NormalRows(3, 7, 50);
  for (double& value : rows[6]) value *= 1e12;
  EXPECT_THAT(ComputeKrumScores(MakeGram(rows), 1, 1).kappa, Lt(100.0));
  Rows far = NormalRows(4, 10, 50);
  for (int i = 0; i < 8; ++i) far[i] = {};
  for (int i = 0; i < 8; ++i) far[i].assign(50, 1e9 + i);
  EXPECT_THAT(ComputeKrumScores(MakeGram(far), 1, 1).kappa, Gt(1e15));
}

TEST(KrumTest, EqualRowsDoNotCancel) {
  const Rows rows(5, {1.25, -3.5, 0.1});
  EXPECT_EQ(ComputeKrumScores(MakeGram(rows), 1, 0).kappa, 1.0);
  EXPECT_EQ(ComputeKrumScores(MakeGram(Rows(5, {0.0})), 1, 0).kappa, 1.0);
}

// Rows that differ by less than their squares' rounding: the plain matrix
// cannot tell which is best, and says so; the compensated one can.
TEST(KrumTest, ACompensatedMatrixTellsCloseRowsApart) {
  int wrong = 0;
  for (int seed = 0; seed < 20; ++seed) {
    Rows rows = NormalRows(100 + seed, 7, 100);
    for (std::vector<double>& row : rows) {
      for (double& value : row) value = 1.0 + 1e-9 * value;
    }
    const reference::Vector scores = reference::KrumScores(rows, 1);
    const int best = static_cast<int>(
        std::min_element(scores.begin(), scores.end()) - scores.begin());
    const KrumScores plain = ComputeKrumScores(MakeGram(rows), 1, 1);
    const KrumScores exact = ComputeKrumScores(MakeCompensatedGram(rows), 1, 1);
    EXPECT_EQ(exact.order[0], best) << seed;
    EXPECT_THAT(plain.kappa, Gt(1e10));
    wrong += plain.order[0] != best ? 1 : 0;
  }
  EXPECT_GT(wrong, 0) << "the plain matrix is good enough: what is it for?";
}

}  // namespace
}  // namespace agg
