// The contract of the interface, on every rule of the table.
#include "server/combine/combination_rule.h"

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/means.h"
#include "server/combine/options.h"
#include "server/combine/rule_table.h"
#include "tests/reference/combination_rules.h"
#include "tests/reference/row_statistics.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

struct Combined {
  std::vector<double> weights;
  RuleResult result;
  RuleState state;
};

// One round by a new object, from `state`.
Combined Combine(const Rule& rule, const Rows& rows, RuleState state = {}) {
  const GramMatrix gram = MakeGram(rows);
  std::vector<double> examples;
  for (size_t i = 0; i < rows.size(); ++i) {
    examples.push_back(static_cast<double>(1 + i % 3));
  }
  const RuleOptions options;
  Combined combined;
  combined.weights.resize(rows.size());
  combined.result = rule.make()->Combine(
      {gram, examples, options.adacons, options.krum, options.geometric_median},
      &state, absl::MakeSpan(combined.weights));
  combined.state = std::move(state);
  return combined;
}

Rows Scaled(Rows rows, double factor) {
  for (std::vector<double>& row : rows) {
    for (double& value : row) value *= factor;
  }
  return rows;
}

class CombinationRuleTest : public testing::TestWithParam<std::string> {
 protected:
  const Rule& rule() const { return *FindRule(GetParam()); }
};

TEST_P(CombinationRuleTest, MatchesItsTranscriptionOnVectors) {
  const auto transcription = reference::FindTranscription(GetParam());
  ASSERT_NE(transcription, nullptr) << "add it to tests/reference";
  for (int num_rows = 1; num_rows <= 17; ++num_rows) {
    Rows rows = BiasedLcgRows(100 + num_rows, num_rows, 57, 0.3);
    if (num_rows > 4) rows[3].assign(57, 0.0);
    std::vector<double> examples;
    for (int i = 0; i < num_rows; ++i) examples.push_back(1 + i % 3);
    const std::vector<double> weights = Combine(rule(), rows).weights;
    EXPECT_LE(reference::Distance(reference::WeightedSum(rows, weights),
                                  transcription(rows, examples)),
              1e-13 * BackwardScale(rows, weights))
        << num_rows;
  }
}

TEST_P(CombinationRuleTest, DependsOnItsArgumentsAlone) {
  const Rows rows = BiasedLcgRows(1, 6, 30, 0.3);
  const GramMatrix gram = MakeGram(rows);
  const std::vector<double> examples(6, 1.0);
  const RuleOptions options;
  const auto used = rule().make();
  std::vector<std::vector<double>> weights(3, std::vector<double>(6));
  for (int i = 0; i < 3; ++i) {
    // The last one by a new object, the others by one that has been used.
    RuleState state;
    (i < 2 ? *used : *rule().make())
        .Combine({gram, examples, options.adacons, options.krum,
                  options.geometric_median},
                 &state, absl::MakeSpan(weights[i]));
  }
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_EQ(weights[0], weights[2]);
}

TEST_P(CombinationRuleTest, ResultDescribesTheCombination) {
  const Rows rows = BiasedLcgRows(2, 5, 30, 0.3);
  const Combined combined = Combine(rule(), rows);
  const double norm_squared = QuadraticForm(MakeGram(rows), combined.weights);
  EXPECT_NEAR(combined.result.norm_squared, norm_squared, 1e-12 * norm_squared);
  EXPECT_GE(combined.result.kappa, 1.0);
  if (!rule().Has(kMeasuresCancellation)) {
    EXPECT_EQ(combined.result.kappa, 1.0);
  }
  EXPECT_FALSE(combined.result.fell_back);
}

// Rows that are doubled: the combination doubles, or stays if it is one of unit
// vectors; the state doubles.
TEST_P(CombinationRuleTest, HasTheUnitsThatItSays) {
  const Rows rows = Scaled(BiasedLcgRows(3, 5, 30, 0.3), 64.0);
  const Combined once = Combine(rule(), rows);
  const Combined twice = Combine(rule(), Scaled(rows, 2.0));
  const double factor = once.result.of_unit_rows ? 0.5 : 1.0;
  for (int i = 0; i < 5; ++i) {
    EXPECT_NEAR(twice.weights[i], factor * once.weights[i],
                1e-9 * std::abs(once.weights[i]));
  }
  ASSERT_EQ(twice.state.values.size(), once.state.values.size());
  for (size_t k = 0; k < once.state.values.size(); ++k) {
    EXPECT_NEAR(twice.state.values[k], 2.0 * once.state.values[k],
                1e-9 * std::abs(once.state.values[k]));
  }
}

TEST_P(CombinationRuleTest, KeepsStateOnlyIfItSaysSo) {
  const Rows rows = BiasedLcgRows(4, 5, 30, 0.3);
  const Combined first = Combine(rule(), rows);
  EXPECT_EQ(!first.state.values.empty(), rule().Has(kKeepsState));
  const Rows next = BiasedLcgRows(5, 4, 30, 0.3);  // one worker less
  const Combined second = Combine(rule(), next, first.state);
  EXPECT_EQ(second.weights == Combine(rule(), next).weights,
            !rule().Has(kKeepsState));
}

// P = 1, a zero row, only zero rows, rows that cancel, empty vectors.
TEST_P(CombinationRuleTest, NeverFails) {
  const std::vector<Rows> cases = {
      {{3, 4}},           {{3, 4}, {0, 0}, {1, 0}},   Rows(3, {0, 0}),
      {{1, 2}, {-1, -2}}, {{1, 2}, {-1, -2}, {1, 0}}, Rows(2)};
  for (const Rows& rows : cases) {
    const Combined combined = Combine(rule(), rows);
    for (const double weight : combined.weights) {
      EXPECT_TRUE(std::isfinite(weight));
    }
    EXPECT_GE(combined.result.norm_squared, 0.0);
    if (!combined.result.fell_back) continue;
    EXPECT_EQ(combined.weights,
              std::vector<double>(rows.size(), 1.0 / rows.size()));
    EXPECT_TRUE(combined.state.values.empty());
  }
}

std::vector<std::string> AllRules() {
  std::vector<std::string> names;
  for (const Rule& rule : Rules()) names.emplace_back(rule.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Rules, CombinationRuleTest,
                         testing::ValuesIn(AllRules()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return info.param;
                         });

TEST(MeanTest, EveryRowCountsTheSame) {
  const GramMatrix gram = MakeGram({{3, 0}, {0, 4}, {0, 0}, {0, 0}});
  std::vector<double> weights(4);
  RuleState state;
  const RuleResult result = MeanRule().Combine({gram, {}, {}, {}, {}}, &state,
                                               absl::MakeSpan(weights));
  EXPECT_EQ(weights, std::vector<double>(4, 0.25));
  EXPECT_EQ(result.norm_squared, 25.0 / 16.0);
}

TEST(SumTest, EveryRowCountsOnce) {
  const GramMatrix gram = MakeGram({{3, 0}, {0, 4}, {0, 0}});
  std::vector<double> weights(3);
  RuleState state;
  const RuleResult result = SumRule().Combine({gram, {}, {}, {}, {}}, &state,
                                              absl::MakeSpan(weights));
  EXPECT_EQ(weights, std::vector<double>(3, 1.0));
  EXPECT_EQ(result.norm_squared, 25.0);
}

TEST(WeightedMeanTest, RowsCountByTheirExamples) {
  const GramMatrix gram = MakeGram({{4, 0}, {0, 4}});
  const std::vector<double> examples = {30, 10};
  std::vector<double> weights(2);
  RuleState state;
  const RuleResult result = WeightedMeanRule().Combine(
      {gram, examples, {}, {}, {}}, &state, absl::MakeSpan(weights));
  EXPECT_EQ(weights, (std::vector<double>{0.75, 0.25}));
  EXPECT_EQ(result.norm_squared, 10.0);
}

std::vector<double> Weights(const Rows& rows) {
  const GramMatrix gram = MakeGram(rows);
  std::vector<double> weights(rows.size());
  RuleState state;
  UnitMeanRule().Combine({gram, {}, {}, {}, {}}, &state,
                         absl::MakeSpan(weights));
  return weights;
}

TEST(UnitMeanTest, MatchesVectorsOfAnyLength) {
  for (const double scale : {1.0, 1e-30, 1e30}) {
    Rows rows = NormalRows(2, 7, 50);
    for (double& value : rows[3]) value *= scale;
    EXPECT_LE(reference::Distance(reference::WeightedSum(rows, Weights(rows)),
                                  reference::UnitMean(rows)),
              1e-15);
  }
}

TEST(UnitMeanTest, ZeroRowsHaveNoWeightAndStillCount) {
  EXPECT_EQ(Weights({{3, 4}, {0, 0}}), (std::vector<double>{0.1, 0.0}));
}

TEST(RuleTableTest, NamesAreUniqueAndFound) {
  std::set<std::string> names;
  for (const Rule& rule : Rules()) {
    EXPECT_TRUE(names.insert(std::string(rule.name)).second) << rule.name;
    EXPECT_EQ(FindRule(rule.name), &rule);
    EXPECT_EQ(*ParseRule("field", rule.name), &rule);
    EXPECT_NE(rule.make(), nullptr);
    EXPECT_FALSE(rule.summary.empty());
    EXPECT_NE(rule.summary.back(), '.');
  }
  EXPECT_EQ(FindRule("Adasum"), nullptr);
  EXPECT_EQ(FindRule(""), nullptr);
}

TEST(RuleTableTest, AnUnknownNameListsTheAllowedOnes) {
  const absl::Status status = ParseRule("combination.rule", "Mean").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message().find("combination.rule is \"Mean\"; allowed: \""),
            0u);
  for (const Rule& rule : Rules()) {
    EXPECT_NE(status.message().find("\"" + std::string(rule.name) + "\""),
              std::string::npos);
  }
}

// Configurations that name no rule or scope must not change their meaning.
TEST(RuleTableTest, Defaults) {
  EXPECT_EQ(DefaultRule().name, "mean");
  EXPECT_EQ(FindRule("adacons")->default_scope, Scope::kGlobal);
  EXPECT_EQ(FindRule("adasum")->default_scope, Scope::kPerTensor);
  EXPECT_EQ(FindRule("mean")->default_scope, Scope::kPerTensor);
}

TEST(RuleTableTest, NamesOfRulesWithATrait) {
  EXPECT_EQ(NamesOfRulesWith(kIsMean), "\"mean\" or \"weighted_mean\"");
  EXPECT_EQ(NamesOfRulesWith(kTakesAdaconsOptions), "\"adacons\"");
}

}  // namespace
}  // namespace agg
