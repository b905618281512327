// Properties of the rules on random, adversarial and scaled inputs, each
// against the reference on full vectors.
#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/combine/decision.h"
#include "server/combine/options.h"
#include "tests/property/row_families.h"
#include "tests/reference/combination_rules.h"
#include "tests/reference/row_statistics.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

constexpr double kFloatEpsilon = 0x1p-23;
constexpr double kDoubleEpsilon = 0x1p-52;
constexpr int kNumElements = 97;

using Engine = std::mt19937_64;

double Uniform(Engine* engine, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(*engine);
}

// Calls `check` with every family at P = 1..33.
void ForAllRows(
    const std::function<void(const std::string&, const Rows&)>& check) {
  for (const RowFamily& family : RowFamilies()) {
    for (int num_rows = 1; num_rows <= 33; ++num_rows) {
      check(family.name + ", " + std::to_string(num_rows) + " rows",
            FamilyRows(family, num_rows, kNumElements));
    }
  }
}

Rows Golden4() { return {{1, 0, 0}, {1, 1, 0}, {0, 1, 1}, {-1, 0, 2}}; }

// Error beside sum |w| ||g||, the backward-stable measure.
double Error(const Rows& rows, const std::vector<double>& weights,
             const reference::Vector& expected) {
  const double error = static_cast<double>(
      reference::Distance(reference::WeightedSum(rows, weights), expected));
  const double scale = BackwardScale(rows, weights);
  return error == 0.0 ? 0.0 : error / scale;
}

TEST(CombinePropertyTest, AdasumIsTheTreeOnVectors) {
  ForAllRows([](const std::string& name, const Rows& rows) {
    const Decision decision = DecideRows(MakeOptions("adasum"), {}, {rows});
    ASSERT_EQ(decision.kind, DecisionKind::kApply) << name;
    EXPECT_LE(
        Error(rows, decision.coefficients[0], reference::AdasumTree(rows)),
        4 * kFloatEpsilon)
        << name;
  });
}

TEST(CombinePropertyTest, AdasumCountedIsTheTreeOnVectors) {
  ForAllRows([](const std::string& name, const Rows& rows) {
    const Decision decision =
        DecideRows(MakeOptions("adasum_counted"), {}, {rows});
    ASSERT_EQ(decision.kind, DecisionKind::kApply) << name;
    EXPECT_LE(Error(rows, decision.coefficients[0],
                    reference::AdasumCountedTree(rows)),
              4 * kFloatEpsilon)
        << name;
  });
}

TEST(CombinePropertyTest, MeansMatchVectors) {
  ForAllRows([](const std::string& name, const Rows& rows) {
    Decision decision = DecideRows(MakeOptions("mean"), {}, {rows});
    EXPECT_LE(Error(rows, decision.coefficients[0], reference::Mean(rows)),
              1e-15)
        << name;
    decision = DecideRows(MakeOptions("unit_mean"), {}, {rows});
    EXPECT_LE(Error(rows, decision.coefficients[0], reference::UnitMean(rows)),
              1e-14)
        << name;
  });
}

// How much a relative error of inner products grows in AdaCons' normalised
// coefficients: sum_ij |<g_i, g_j>| / ||g_i|| beside |sum of alphas|.
double AdaconsCondition(const Rows& rows) {
  const reference::Vector mean = reference::Mean(rows);
  long double absolute = 0;
  long double sum = 0;
  for (const std::vector<double>& row : rows) {
    const reference::Vector vector = reference::ToVector(row);
    const long double norm = reference::Norm(vector) + 1e-8L;
    sum += reference::Dot(mean, vector) / norm;
    for (const std::vector<double>& other : rows) {
      absolute +=
          std::abs(reference::Dot(vector, reference::ToVector(other))) / norm;
    }
  }
  return static_cast<double>(absolute / rows.size() / std::abs(sum));
}

TEST(CombinePropertyTest, AdaconsMatchesVectors) {
  ForAllRows([](const std::string& name, const Rows& rows) {
    const Decision decision = DecideRows(MakeOptions("adacons"), {}, {rows});
    reference::Vector momentum;
    const reference::AdaconsStep adacons =
        reference::Adacons(rows, 0.99L, 1e-8L, reference::Rescale::kNone,
                           reference::Unsort::kScatter, &momentum);
    EXPECT_EQ(decision.adacons_fallback, adacons.fell_back) << name;
    // Above the limit the matrix is made again with twice the digits.
    const double condition =
        adacons.fell_back
            ? 1.0
            : std::fmin(AdaconsCondition(rows), RuleOptions().kappa_limit);
    EXPECT_LE(Error(rows, decision.coefficients[0], adacons.direction),
              8 * kDoubleEpsilon * std::fmax(condition, 1.0))
        << name;
  });
}

TEST(CombinePropertyTest, StatisticsStayInTheirRanges) {
  ForAllRows([](const std::string& name, const Rows& rows) {
    const double num_rows = static_cast<double>(rows.size());
    const Decision decision = DecideRows(MakeOptions("mean"), {}, {rows});
    EXPECT_GE(decision.gain, 1.0) << name;
    EXPECT_LE(decision.gain, num_rows) << name;
    // Of the averages with this round, and of each group alone.
    CombineOptions options = MakeOptions("mean");
    options.step_scale.kind = StepScale::kAdascale;
    options.step_scale.averaging = Averaging::kLagged;
    options.step_scale.gain_scope = GainScope::kPerGroup;
    options.step_scale.groups = {"", "second"};
    RoundInput input = MakeRound({rows, rows});
    input.group_of_tensor = {0, 1};
    const Decision first = Decide(options, {}, input);
    if (first.kind == DecisionKind::kApply) {
      EXPECT_EQ(first.gain, 1.0) << name;
      EXPECT_GE(first.next_gain, 1.0) << name;
      EXPECT_LE(first.next_gain, num_rows) << name;
      const Decision second = Decide(options, first.next_state, input);
      EXPECT_EQ(second.gain, first.next_gain) << name;
      for (const double gain : second.group_gains) {
        EXPECT_GE(gain, 1.0) << name;
        EXPECT_LE(gain, num_rows) << name;
      }
    }
    if (std::isnan(decision.orthogonality)) return;  // all rows zero
    EXPECT_GE(decision.orthogonality, 0.0) << name;
    EXPECT_LE(decision.orthogonality, 1.0) << name;
    EXPECT_GE(decision.gradient_diversity, (1 - 1e-12) / num_rows) << name;
  });
}

TEST(CombinePropertyTest, AppendingZeroRowsChangesNothing) {
  for (int num_rows = 1; num_rows <= 20; ++num_rows) {
    for (const char* rule : {"adasum", "adasum_counted"}) {
      Rows rows = BiasedLcgRows(num_rows, num_rows, 40, 0.4);
      const std::vector<double> before =
          DecideRows(MakeOptions(rule), {}, {rows}).coefficients[0];
      rows.resize(num_rows + 5, std::vector<double>(40, 0.0));
      std::vector<double> after =
          DecideRows(MakeOptions(rule), {}, {rows}).coefficients[0];
      after.resize(num_rows);
      EXPECT_EQ(after, before);  // bit by bit
    }
  }
}

TEST(CombinePropertyTest, InsertingAZeroRowRepairsTheTree) {
  Rows rows = Golden4();
  const std::vector<double> before =
      DecideRows(MakeOptions("adasum"), {}, {rows}).coefficients[0];
  rows.insert(rows.begin() + 1, std::vector<double>(3, 0.0));
  const std::vector<double> after =
      DecideRows(MakeOptions("adasum"), {}, {rows}).coefficients[0];
  EXPECT_NE(after[0], before[0]);
}

TEST(CombinePropertyTest, PowerOfTwoScalesAreExact) {
  for (const int exponent : {-40, -3, 1, 60}) {
    for (const char* rule : {"adasum", "adasum_counted", "mean"}) {
      Rows rows = BiasedLcgRows(9, 7, 40, 0.4);
      const Decision before = DecideRows(MakeOptions(rule), {}, {rows});
      for (std::vector<double>& row : rows) {
        ScaleRow(std::ldexp(1.0, exponent), &row);
      }
      const Decision after = DecideRows(MakeOptions(rule), {}, {rows});
      EXPECT_EQ(after.coefficients, before.coefficients);
      EXPECT_EQ(after.combined_norm,
                std::ldexp(before.combined_norm, exponent));
      EXPECT_EQ(after.orthogonality, before.orthogonality);
    }
  }
}

TEST(CombinePropertyTest, ACommonRotationCommutes) {
  Rows rows = BiasedLcgRows(10, 6, 40, 0.4);
  Rows rotated = rows;
  for (std::vector<double>& row : rotated) {  // plane rotations
    for (int k = 0; k + 1 < 40; ++k) {
      const double a = row[k];
      const double b = row[k + 1];
      row[k] = 0.6 * a - 0.8 * b;
      row[k + 1] = 0.8 * a + 0.6 * b;
    }
  }
  for (const char* rule : {"adasum", "adacons", "unit_mean"}) {
    const std::vector<double> before =
        DecideRows(MakeOptions(rule), {}, {rows}).coefficients[0];
    const std::vector<double> after =
        DecideRows(MakeOptions(rule), {}, {rotated}).coefficients[0];
    for (int i = 0; i < 6; ++i) EXPECT_NEAR(after[i], before[i], 1e-12);
  }
}

TEST(CombinePropertyTest, TwoRowsMaySwap) {
  for (int seed = 0; seed < 50; ++seed) {
    const Rows rows = BiasedLcgRows(seed, 2, 20, 0.5);
    for (const char* rule : {"adasum", "adacons"}) {
      const std::vector<double> before =
          DecideRows(MakeOptions(rule), {}, {rows}).coefficients[0];
      const std::vector<double> after =
          DecideRows(MakeOptions(rule), {}, {{rows[1], rows[0]}})
              .coefficients[0];
      EXPECT_NEAR(after[0], before[1], 1e-15);
      EXPECT_NEAR(after[1], before[0], 1e-15);
    }
  }
}

// Order matters: four rows have exactly three distinct results.
TEST(CombinePropertyTest, FourRowsHaveThreeResults) {
  std::vector<int> order = {0, 1, 2, 3};
  std::vector<reference::Vector> distinct;
  do {
    Rows rows;
    for (const int i : order) rows.push_back(Golden4()[i]);
    const Decision decision = DecideRows(MakeOptions("adasum"), {}, {rows});
    const reference::Vector result =
        reference::WeightedSum(rows, decision.coefficients[0]);
    bool known = false;
    for (const reference::Vector& other : distinct) {
      known = known || reference::Distance(result, other) < 1e-12L;
    }
    if (!known) distinct.push_back(result);
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(distinct.size(), 3u);
}

TEST(CombinePropertyTest, NormOfAdasumIsBounded) {
  for (int seed = 0; seed < 2000; ++seed) {
    Engine engine(seed);
    Rows rows = NormalRows(seed, 2 + seed % 9, 1 + seed % 4);
    for (std::vector<double>& row : rows) {
      ScaleRow(std::pow(10.0, Uniform(&engine, -3, 3)), &row);
    }
    RoundRows(&rows);
    long double squares = 0;
    for (const std::vector<double>& row : rows) {
      squares += reference::NormSquared(reference::ToVector(row));
    }
    for (const char* rule : {"adasum", "adasum_counted"}) {
      const Decision decision = DecideRows(MakeOptions(rule), {}, {rows});
      EXPECT_LE(decision.combined_norm * decision.combined_norm,
                static_cast<double>(squares) * (1 + 1e-9));
    }
  }
}

// (g, -g (1 + 1e-6), h): nearly exact opposites of different length.
TEST(CombinePropertyTest, CancellationEqualsTheTree) {
  Rows rows = NormalRows(1, 3, kNumElements);
  rows[1] = rows[0];
  ScaleRow(-(1 + 1e-6), &rows[1]);
  const Decision decision = DecideRows(MakeOptions("adasum"), {}, {rows});
  EXPECT_TRUE(decision.compensated);
  const reference::Vector expected = reference::AdasumTree(rows);
  EXPECT_LE(
      static_cast<double>(reference::Distance(
          reference::WeightedSum(rows, decision.coefficients[0]), expected)),
      1e-9 * static_cast<double>(reference::Norm(expected)));
}

}  // namespace
}  // namespace agg
