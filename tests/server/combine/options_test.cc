#include "server/combine/options.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/combine/rule_table.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

CombineOptions Valid() {
  CombineOptions options;
  options.schedule.learning_rate = 0.1;
  return options;
}

// Each message names the field, its value and what is allowed.
void ExpectRefused(const CombineOptions& options, const std::string& field,
                   const std::string& value, const std::string& allowed) {
  const absl::Status status = ValidateCombineOptions(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr(field + " is "));
  EXPECT_THAT(message, HasSubstr(value));
  EXPECT_THAT(message, HasSubstr("; allowed: "));
  EXPECT_THAT(message, HasSubstr(allowed));
}

TEST(OptionsTest, NamesRoundTrip) {
  for (const char* name : {"per_tensor", "global"}) {
    const absl::StatusOr<Scope> scope = ParseScope("field", name);
    ASSERT_TRUE(scope.ok()) << scope.status();
    EXPECT_EQ(ScopeName(*scope), name);
  }
  for (const char* name : {"none", "linear", "sqrt", "adascale", "adamscale"}) {
    const absl::StatusOr<StepScale> scale = ParseStepScale("field", name);
    ASSERT_TRUE(scale.ok()) << scale.status();
    EXPECT_EQ(StepScaleName(*scale), name);
  }
  EXPECT_EQ(*ParseAdaconsRescale("field", "match_mean"),
            AdaconsRescale::kMatchMean);
  EXPECT_EQ(*ParseAdaconsRescale("field", "mean_norm"),
            AdaconsRescale::kMeanNorm);
  for (const char* name : {"scatter", "gather"}) {
    const absl::StatusOr<AdaconsUnsort> unsort =
        ParseAdaconsUnsort("field", name);
    ASSERT_TRUE(unsort.ok()) << unsort.status();
    EXPECT_EQ(AdaconsUnsortName(*unsort), name);
  }
  EXPECT_EQ(*ParseAveraging("field", "paper"), Averaging::kPaper);
  EXPECT_EQ(*ParseAveraging("field", "lagged"), Averaging::kLagged);
  EXPECT_EQ(*ParseSmoothingPer("field", "round"), SmoothingPer::kRound);
  EXPECT_EQ(*ParseSmoothingPer("field", "baseline_batch"),
            SmoothingPer::kBaselineBatch);
  EXPECT_EQ(*ParseGainScope("field", "per_group"), GainScope::kPerGroup);
  EXPECT_EQ(*ParseScheduleKind("field", "inverse_sqrt"),
            ScheduleKind::kInverseSqrt);
}

TEST(OptionsTest, UnknownNamesListTheAllowedOnes) {
  const absl::Status status = ParseScope("combination.scope", "").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "combination.scope is \"\"; allowed: \"per_tensor\", \"global\"");
  EXPECT_FALSE(ParseStepScale("field", "Linear").ok());
  EXPECT_FALSE(ParseAdaconsRescale("field", "mean").ok());
  EXPECT_FALSE(ParseAdaconsUnsort("field", "Gather").ok());
  EXPECT_EQ(ParseAveraging("step_scale.averaging", "ema").status().message(),
            "step_scale.averaging is \"ema\"; allowed: \"debiased\", "
            "\"paper\", \"lagged\"");
  EXPECT_EQ(ParseSmoothingPer("f", "step").status().message(),
            "f is \"step\"; allowed: \"round\", \"baseline_batch\"");
  EXPECT_EQ(ParseGainScope("f", "per_tensor").status().message(),
            "f is \"per_tensor\"; allowed: \"global\", \"per_group\"");
  EXPECT_FALSE(ParseScheduleKind("field", "step").ok());
}

TEST(OptionsTest, DefaultsAreValidOnceThereIsARate) {
  EXPECT_TRUE(ValidateCombineOptions(Valid()).ok());
  ExpectRefused(CombineOptions(), "learning_rate.rate", "0", "> 0");
}

TEST(OptionsTest, RuleFields) {
  CombineOptions options = Valid();
  options.rule.adacons.beta = 1.0;
  ExpectRefused(options, "combination.adacons.beta", "1", "[0, 1)");
  options = Valid();
  options.rule.adacons.epsilon = 0.0;
  ExpectRefused(options, "combination.adacons.epsilon", "0", "> 0");
  options = Valid();
  options.rule.kappa_limit = 0.5;
  ExpectRefused(options, "combination.kappa_limit", "0.5", ">= 1");
  options = Valid();
  options.shadow_rules.resize(2);
  options.shadow_rules[1].adacons.beta = -0.25;
  ExpectRefused(options, "shadow_rules[1].adacons.beta", "-0.25", "[0, 1)");
}

TEST(OptionsTest, StepScaleFields) {
  CombineOptions options = Valid();
  options.step_scale.smoothing = 1.0;
  ExpectRefused(options, "step_scale.smoothing", "1", "< 1");
  options = Valid();
  options.step_scale.variance_floor = -1.0;
  ExpectRefused(options, "step_scale.variance_floor", "-1", ">= 0");
  options = Valid();
  options.step_scale.relative_floor = std::numeric_limits<double>::infinity();
  ExpectRefused(options, "step_scale.relative_floor", "inf", "finite");
  options = Valid();
  options.step_scale.baseline_examples = -2.0;
  ExpectRefused(options, "step_scale.baseline_examples", "-2", ">= 0");
  options = Valid();
  options.step_scale.smoothing_per = SmoothingPer::kBaselineBatch;
  ExpectRefused(options, "step_scale.smoothing_per", "\"baseline_batch\"",
                "with step_scale.smoothing set");
  options.step_scale.smoothing = 0.999;
  EXPECT_TRUE(ValidateCombineOptions(options).ok());
}

// Else the gain would depend on the norms of the round that it multiplies.
TEST(OptionsTest, ALaggedGainHasNoFloorByThePresentRound) {
  CombineOptions options = Valid();
  options.step_scale.averaging = Averaging::kLagged;
  options.step_scale.relative_floor = 0.5;
  EXPECT_TRUE(ValidateCombineOptions(options).ok());
  options.step_scale.clip_before_average = false;
  ExpectRefused(options, "step_scale.relative_floor", "0.5",
                "0 with averaging \"lagged\"");
  options.step_scale.relative_floor = 0.0;
  EXPECT_TRUE(ValidateCombineOptions(options).ok());
}

TEST(OptionsTest, GainScalesMeansOnlyUnlessForced) {
  for (const StepScale kind : {StepScale::kAdascale, StepScale::kAdamscale}) {
    for (const Rule& rule : Rules()) {
      CombineOptions options = Valid();
      options.step_scale.kind = kind;
      options.rule.rule = &rule;
      if (!rule.Has(kIsMean)) {
        ExpectRefused(options, "step_scale.kind",
                      std::string(StepScaleName(kind)), "step_scale.force");
        options.step_scale.force = true;
      }
      EXPECT_TRUE(ValidateCombineOptions(options).ok()) << rule.name;
    }
  }
  CombineOptions options = Valid();
  options.step_scale.kind = StepScale::kLinear;
  options.rule.rule = FindRule("adasum");
  EXPECT_TRUE(ValidateCombineOptions(options).ok());
}

TEST(OptionsTest, ScheduleFields) {
  CombineOptions options = Valid();
  options.schedule.learning_rate = std::numeric_limits<double>::quiet_NaN();
  ExpectRefused(options, "learning_rate.rate", "nan", "> 0");
  options = Valid();
  options.schedule.warmup_steps = -3;
  ExpectRefused(options, "learning_rate.warmup_steps", "-3", ">= 0");
  options = Valid();
  options.schedule.warmup_start_factor = 1.5;
  ExpectRefused(options, "learning_rate.warmup_start_factor", "1.5", "[0, 1]");
  options = Valid();
  options.schedule.gamma = 0.0;
  ExpectRefused(options, "learning_rate.gamma", "0", "> 0");
  options = Valid();
  options.schedule.final_factor = -1.0;
  ExpectRefused(options, "learning_rate.final_factor", "-1", ">= 0");
  options = Valid();
  options.schedule.power = 0.0;
  ExpectRefused(options, "learning_rate.power", "0", "> 0");
  for (const ScheduleKind kind :
       {ScheduleKind::kExponential, ScheduleKind::kPolynomial,
        ScheduleKind::kCosine}) {
    options = Valid();
    options.schedule.kind = kind;
    ExpectRefused(options, "learning_rate.decay_steps", "0", "> 0");
  }
  options = Valid();
  options.schedule.kind = ScheduleKind::kMultistep;
  ExpectRefused(options, "learning_rate.boundaries", "empty", "at least one");
  options.schedule.boundaries = {5, 9, 9};
  ExpectRefused(options, "learning_rate.boundaries[2]", "9", "greater");
}

TEST(OptionsTest, JobFields) {
  CombineOptions options = Valid();
  options.clip_norm = -1.0;
  ExpectRefused(options, "clip_norm", "-1", ">= 0");
  options = Valid();
  options.scale_invariant_iterations = -5.0;
  ExpectRefused(options, "scale_invariant_iterations", "-5", ">= 0");
}

}  // namespace
}  // namespace agg
