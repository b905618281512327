// The rule external: answers, their checks, and what runs without one.
#include "server/combine/external.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/combine/compacted_round.h"
#include "server/combine/decision.h"
#include "server/combine/options.h"
#include "server/combine/outliers.h"
#include "server/combine/rule_table.h"
#include "server/combine/statistics.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

ExternalAnswer Answer(std::vector<ExternalSegment> segments) {
  ExternalAnswer answer;
  answer.name = "external";
  answer.segments = std::move(segments);
  return answer;
}

ExternalAnswer Missing(const std::string& why) {
  ExternalAnswer answer;
  answer.name = "external";
  answer.missing = why;
  return answer;
}

// Rows of two tensors; row 1 is twice the gradient.
CompactedRound Round(std::vector<ExternalAnswer> answers) {
  RoundInput input = MakeRound({{{1, 0}, {0, 2}}, {{3}, {2}}});
  input.rows[1].loss_scale = 2.0;
  CompactedRound round = CompactRound(input.rows, std::move(input.tensors));
  round.external = std::move(answers);
  return round;
}

CombineOptions Options(Scope scope = Scope::kGlobal,
                       const std::string& fallback = "mean") {
  CombineOptions options = MakeOptions("external");
  options.rule.scope = scope;
  options.rule.external.fallback = FindRule(fallback);
  return options;
}

TEST(ExternalTest, AppliesTheAnswersWeightsToTheGradients) {
  const Decision decision = DecideCoefficients(
      Options(), {}, 0, Round({Answer({{{0.25, -3.0}, "new"}})}));
  EXPECT_EQ(decision.kind, DecisionKind::kApply);
  ASSERT_EQ(decision.coefficients.size(), 1u);
  // The second row is two gradients long.
  EXPECT_THAT(decision.coefficients[0], ElementsAre(0.25, -1.5));
  // ||.25 (1, 0, 3) - 3 (0, 1, 1)||
  EXPECT_DOUBLE_EQ(decision.combined_norm,
                   std::sqrt(0.25 * 0.25 + 9.0 + 2.25 * 2.25));
  EXPECT_EQ(decision.external_fallback, "");
  ASSERT_EQ(decision.next_state.rule.size(), 1u);
  EXPECT_EQ(decision.next_state.rule[0].bytes, "new");
}

TEST(ExternalTest, HasWeightsAndStatesForEachTensor) {
  const Decision decision = DecideCoefficients(
      Options(Scope::kPerTensor), {}, 0,
      Round({Answer({{{1.0, 2.0}, "a"}, {{4.0, 8.0}, ""}})}));
  ASSERT_EQ(decision.coefficients.size(), 2u);
  EXPECT_THAT(decision.coefficients[0], ElementsAre(1.0, 1.0));
  EXPECT_THAT(decision.coefficients[1], ElementsAre(4.0, 4.0));
  EXPECT_EQ(decision.next_state.rule[0].bytes, "a");
  EXPECT_EQ(decision.next_state.rule[1].bytes, "");
}

TEST(ExternalTest, WithoutAnAnswerTheFallbackRunsAndTheStateStays) {
  CombineState state;
  state.rule.resize(1);
  state.rule[0].bytes = "old";
  for (const char* fallback : {"mean", "sum", "adasum", "unit_mean"}) {
    const CombineOptions external = Options(Scope::kGlobal, fallback);
    const Decision decision =
        DecideCoefficients(external, state, 0, Round({Missing("it is away")}));
    CombineOptions plain = MakeOptions(fallback);
    plain.rule.scope = Scope::kGlobal;
    EXPECT_EQ(decision.coefficients,
              DecideCoefficients(plain, {}, 0, Round({})).coefficients);
    EXPECT_EQ(decision.external_fallback, "it is away");
    ASSERT_EQ(decision.next_state.rule.size(), 1u);
    EXPECT_EQ(decision.next_state.rule[0].bytes, "old");
  }
  EXPECT_EQ(DecideCoefficients(Options(), {}, 0, Round({})).external_fallback,
            "it was not asked");
}

// What a fallback asks for is as if it were the rule.
TEST(ExternalTest, AFallbackGetsCompensatedGrams) {
  Rows rows = NormalRows(1, 4, 20);
  for (size_t k = 0; k < rows[0].size(); ++k) {
    rows[1][k] = -rows[0][k] + 1e-6 * rows[1][k];
  }
  const RoundInput input = MakeRound({rows});
  CompactedRound round = CompactRound(input.rows, input.tensors);
  round.external = {Missing("it is away")};
  const CombineOptions options = Options(Scope::kGlobal, "adasum");
  EXPECT_EQ(DecideCoefficients(options, {}, 0, round).kind,
            DecisionKind::kNeedsCompensated);
  round.external = {Answer({{{1.0, 1.0, 1.0, 1.0}, ""}})};
  EXPECT_EQ(DecideCoefficients(options, {}, 0, round).kind,
            DecisionKind::kApply);
}

TEST(ExternalTest, TheStepScaleMultipliesTheLearningRate) {
  ExternalAnswer answer = Answer({{{1.0, 0.0}, ""}});
  answer.step_scale = 3.0;
  CombineOptions options = Options();
  options.schedule.learning_rate = 0.5;
  const Decision decision = DecideCoefficients(options, {}, 0, Round({answer}));
  EXPECT_EQ(decision.scheduled_learning_rate, 0.5);
  EXPECT_EQ(decision.step_factor, 3.0);
  EXPECT_EQ(decision.learning_rate, 1.5);
}

TEST(ExternalTest, AShadowIsComparedAndUndefinedWithoutAnAnswer) {
  CombineOptions options = MakeOptions("mean");
  options.shadow_rules.push_back(MakeOptions("external").rule);
  const auto shadow_of = [&](const ExternalAnswer& answer) {
    const CompactedRound round = Round({answer});
    const Decision decision = DecideCoefficients(options, {}, 0, round);
    EXPECT_EQ(decision.external_fallback, "");  // it is about the applied rule
    std::vector<std::vector<RuleState>> states;
    const RoundStatistics statistics =
        ComputeStatistics(options, {}, round, decision, &states);
    return std::make_pair(statistics.shadows.at(0), states.at(0));
  };
  const auto [known, state] = shadow_of(Answer({{{1.0, 0.0}, "new"}}));
  EXPECT_THAT(known.coefficients, ElementsAre(1.0, 0.0));
  EXPECT_DOUBLE_EQ(known.norm, std::sqrt(10.0));
  EXPECT_GT(known.cosine, 0.0);
  ASSERT_EQ(state.size(), 1u);
  EXPECT_EQ(state[0].bytes, "new");
  const auto [unknown, none] = shadow_of(Missing("it is away"));
  EXPECT_TRUE(std::isnan(unknown.norm));
  EXPECT_TRUE(std::isnan(unknown.cosine));
  EXPECT_TRUE(unknown.coefficients.empty());
  EXPECT_TRUE(none.empty());
}

TEST(CheckExternalAnswerTest, NamesWhatDoesNotFit) {
  EXPECT_TRUE(CheckExternalAnswer(Answer({{{1.0, -1e300}, "s"}}), 1, 2).ok());
  const auto error = [](ExternalAnswer answer, double step_scale = 1.0) {
    answer.step_scale = step_scale;
    const absl::Status status = CheckExternalAnswer(answer, 1, 2);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(error(Answer({})), HasSubstr("segments is 0; allowed: 1"));
  EXPECT_THAT(error(Answer({{{1.0}, ""}})),
              HasSubstr("segments[0].weights is 1 weights; allowed: 2"));
  EXPECT_THAT(error(Answer({{{1.0, kNan}, ""}})),
              HasSubstr("segments[0].weights[1] is nan; allowed: finite"));
  EXPECT_THAT(
      error(Answer({{{1.0, 1.0}, std::string(kMostExternalState + 1, 'x')}})),
      HasSubstr("state is 65537 bytes; allowed: at most 65536"));
  const ExternalAnswer good = Answer({{{1.0, 1.0}, ""}});
  for (const double scale : {0.0, -1.0, kNan, HUGE_VAL}) {
    EXPECT_THAT(error(good, scale), HasSubstr("step_scale is "));
  }
}

TEST(ExternalOptionsTest, AreChecked) {
  const auto error = [](const CombineOptions& options) {
    return std::string(ValidateCombineOptions(options).message());
  };
  CombineOptions options = Options();
  EXPECT_EQ(error(options), "");
  options.rule.external.name = "a b";
  EXPECT_THAT(error(options),
              HasSubstr("combination.external.name is \"a b\"; allowed: "));
  options.rule.external.name = "mine";
  for (const char* rule : {"adacons", "external"}) {
    options.rule.external.fallback = FindRule(rule);
    EXPECT_THAT(
        error(options),
        HasSubstr("combination.external.fallback is \"" + std::string(rule) +
                  "\"; allowed: a rule that keeps no state: \"sum\""));
  }
  options.rule.external.fallback = FindRule("adasum");
  for (const double seconds : {0.0, -1.0, kNan, 3601.0}) {
    options.rule.external.timeout_seconds = seconds;
    EXPECT_THAT(error(options),
                HasSubstr("combination.external.timeout_seconds is "));
  }
  options.rule.external.timeout_seconds = 0.001;
  EXPECT_EQ(error(options), "");
  // A process could not know which of the two it is asked about.
  options.shadow_rules.push_back(options.rule);
  EXPECT_THAT(error(options),
              HasSubstr("shadow_rules[0].external.name is \"mine\""));
  options.shadow_rules[0].external.name = "other";
  EXPECT_EQ(error(options), "");
  // AdaScale's gain is of a mean.
  options.step_scale.kind = StepScale::kAdascale;
  EXPECT_THAT(error(options), HasSubstr("step_scale.kind is \"adascale\""));
}

TEST(ExternalOptionsTest, NoRoundOfItIsPublishedInPieces) {
  const absl::Status status = CheckPipelining(Options(Scope::kPerTensor));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("combination.rule is \"external\"; allowed: with "
                        "publish \"pipelined\": \"sum\", "));
  CombineOptions options = MakeOptions("mean");
  options.rule.scope = Scope::kPerTensor;
  EXPECT_EQ(CheckPipelining(options), absl::OkStatus());
  options.shadow_rules.push_back(MakeOptions("krum").rule);
  options.shadow_rules.push_back(Options(Scope::kGlobal).rule);
  EXPECT_THAT(std::string(CheckPipelining(options).message()),
              HasSubstr("shadow_rules[1].rule is \"external\"; allowed: with "
                        "publish \"pipelined\": "));
}

}  // namespace
}  // namespace agg
