// What makes a rule robust: byzantine rows do not carry the result away,
// however long they are and wherever they point.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/combine/decision.h"
#include "server/combine/options.h"
#include "server/combine/rule_table.h"
#include "tests/reference/row_statistics.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

constexpr int kNumElements = 60;
constexpr const char* kRobustRules[] = {"krum", "multi_krum",
                                        "geometric_median"};

using Engine = std::mt19937_64;

CombineOptions Options(const std::string& rule, int byzantine) {
  CombineOptions options = MakeOptions(rule);
  options.rule.krum.byzantine_workers = byzantine;
  return options;
}

std::vector<double> Weights(const CombineOptions& options, const Rows& rows) {
  const Decision decision = DecideRows(options, {}, {rows});
  EXPECT_EQ(decision.kind, DecisionKind::kApply);
  return decision.coefficients[0];
}

// Honest rows around a common gradient.
Rows Honest(uint64_t seed, int num_rows) {
  Rows rows = NormalRows(seed, num_rows, kNumElements);
  for (std::vector<double>& row : rows) {
    for (double& value : row) value += 1.0;
  }
  return rows;
}

// Makes the first `byzantine` rows one of several kinds of garbage.
void Spoil(int kind, int byzantine, Engine* engine, Rows* rows) {
  std::normal_distribution<double> normal;
  for (int i = 0; i < byzantine; ++i) {
    const double length = std::pow(10.0, 1 + kind % 3 * 6);  // 10, 1e7, 1e13
    for (size_t e = 0; e < (*rows)[i].size(); ++e) {
      double& value = (*rows)[i][e];
      if (kind < 3) value = length * normal(*engine);         // noise
      if (kind >= 3 && kind < 6) value = -length * value;     // turned round
      if (kind >= 6) value = length * (e % 2 == 0 ? 1 : -1);  // together
    }
  }
}

// Theorem 2.2 of Lopuhaa and Rousseeuw (1991), as RFA has it: with f < P/2 rows
// anywhere, the geometric median is within 2 (P - f) / (P - 2 f) of the honest
// rows' radius of any point c.
double Bound(const Rows& honest, int num_rows, int byzantine) {
  const std::vector<double> mean(honest.size(), 1.0 / honest.size());
  const reference::Vector center = reference::WeightedSum(honest, mean);
  reference::Real radius = 0;
  for (const std::vector<double>& row : honest) {
    radius =
        std::max(radius, reference::Distance(center, reference::ToVector(row)));
  }
  return static_cast<double>(radius) * 2 * (num_rows - byzantine) /
         (num_rows - 2 * byzantine);
}

TEST(RobustPropertyTest, ByzantineRowsDoNotCarryTheResultAway) {
  Engine engine(1);
  for (int byzantine = 1; byzantine <= 5; ++byzantine) {
    for (int num_rows = 2 * byzantine + 3; num_rows <= 17; num_rows += 3) {
      for (int kind = 0; kind < 9; ++kind) {
        Rows rows = Honest(100 * byzantine + num_rows, num_rows);
        Spoil(kind, byzantine, &engine, &rows);
        const Rows honest(rows.begin() + byzantine, rows.end());
        const reference::Vector center = reference::WeightedSum(
            honest, std::vector<double>(honest.size(), 1.0 / honest.size()));
        for (const char* rule : kRobustRules) {
          CombineOptions options = Options(rule, byzantine);
          options.rule.geometric_median.iterations = 300;
          const std::vector<double> weights = Weights(options, rows);
          EXPECT_LE(static_cast<double>(reference::Distance(
                        reference::WeightedSum(rows, weights), center)),
                    Bound(honest, num_rows, byzantine))
              << rule << ", " << byzantine << " of " << num_rows << ", kind "
              << kind;
          if (options.rule.rule->Has(kTakesKrumOptions)) {
            EXPECT_EQ(std::accumulate(weights.begin(),
                                      weights.begin() + byzantine, 0.0),
                      0.0);
          }
        }
        // The mean is carried away by the same rows.
        if (kind != 3 && kind != 0 && kind != 6) {
          EXPECT_GT(static_cast<double>(reference::Distance(
                        reference::WeightedSum(
                            rows, Weights(Options("mean", 0), rows)),
                        center)),
                    Bound(honest, num_rows, byzantine));
        }
      }
    }
  }
}

// The first `byzantine` rows, as far as a float32 goes: together, apart, and
// each a million million times as far as the one before.
Rows FarRows(const Rows& rows, int byzantine, int kind, double length,
             Engine* engine) {
  std::normal_distribution<double> normal;
  Rows far = rows;
  for (int i = 0; i < byzantine; ++i) {
    const double own = kind == 2 ? length / std::pow(1e12, i) : length;
    for (size_t e = 0; e < far[i].size(); ++e) {
      const double noise = std::clamp(normal(*engine), -3.0, 3.0);
      far[i][e] = own * (kind == 1 ? noise : e % 2 == 0 ? 1 : -1);
    }
  }
  return far;
}

TEST(RobustPropertyTest, TheDefaultIterationsBearRowsOfAnyLength) {
  Engine engine(5);
  const CombineOptions options = Options("geometric_median", 0);
  for (int num_rows = 3; num_rows <= 8; ++num_rows) {
    const Rows near = Honest(200 + num_rows, num_rows);
    for (int byzantine = 1; 2 * byzantine < num_rows; ++byzantine) {
      const Rows honest(near.begin() + byzantine, near.end());
      const reference::Vector center = reference::WeightedSum(
          honest, std::vector<double>(honest.size(), 1.0 / honest.size()));
      for (const double length : {1e3, 1e6, 1e12, 1e20, 1e30, 1e38}) {
        for (int kind = 0; kind < 3; ++kind) {
          const Rows rows = FarRows(near, byzantine, kind, length, &engine);
          EXPECT_LE(static_cast<double>(reference::Distance(
                        reference::WeightedSum(rows, Weights(options, rows)),
                        center)),
                    Bound(honest, num_rows, byzantine))
              << byzantine << " of " << num_rows << ", " << length << ", kind "
              << kind;
        }
      }
    }
  }
}

// Half of the rows and more, in one place, win: nobody can tell them from
// honest ones.
TEST(RobustPropertyTest, AMajorityOfByzantineRowsWins) {
  Engine engine(2);
  for (const char* rule : kRobustRules) {
    Rows rows = Honest(3, 9);
    Spoil(/*kind=*/7, /*byzantine=*/5, &engine, &rows);
    const std::vector<double> weights = Weights(Options(rule, 3), rows);
    EXPECT_GT(reference::Norm(reference::WeightedSum(rows, weights)), 1e5L)
        << rule;
  }
}

TEST(RobustPropertyTest, TheOrderOfTheRowsDoesNotMatter) {
  Engine engine(4);
  for (int num_rows = 4; num_rows <= 16; ++num_rows) {
    const Rows rows = Honest(num_rows, num_rows);
    std::vector<int> order(num_rows);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), engine);
    Rows shuffled;
    for (const int row : order) shuffled.push_back(rows[row]);
    for (const char* rule : kRobustRules) {
      const CombineOptions options = Options(rule, 0);
      const std::vector<double> plain = Weights(options, rows);
      const std::vector<double> weights = Weights(options, shuffled);
      for (int k = 0; k < num_rows; ++k) {
        EXPECT_NEAR(weights[k], plain[order[k]], 1e-12) << rule;
      }
    }
  }
}

// A power of two passes through exactly: nothing in them has a unit.
TEST(RobustPropertyTest, TheLengthOfTheRowsDoesNotMatter) {
  for (const double factor : {0x1p-80, 0x1p-1, 0x1p90}) {
    for (int num_rows = 1; num_rows <= 12; ++num_rows) {
      const Rows rows = Honest(50 + num_rows, num_rows);
      Rows scaled = rows;
      for (std::vector<double>& row : scaled) {
        for (double& value : row) value *= factor;
      }
      for (const char* rule : kRobustRules) {
        EXPECT_EQ(Weights(Options(rule, 1), rows),
                  Weights(Options(rule, 1), scaled))
            << rule;
      }
    }
  }
}

// Both look at differences alone: a common offset changes nothing but how much
// of them cancels.
TEST(RobustPropertyTest, ACommonOffsetDoesNotMatter) {
  for (int num_rows = 3; num_rows <= 12; ++num_rows) {
    const Rows rows = Honest(80 + num_rows, num_rows);
    Rows moved = rows;
    for (std::vector<double>& row : moved) {
      for (double& value : row) value += 16.0;
    }
    for (const char* rule : kRobustRules) {
      const std::vector<double> plain = Weights(Options(rule, 1), rows);
      const std::vector<double> weights = Weights(Options(rule, 1), moved);
      for (int i = 0; i < num_rows; ++i) {
        EXPECT_NEAR(weights[i], plain[i], 1e-9) << rule;
      }
    }
  }
}

}  // namespace
}  // namespace agg
