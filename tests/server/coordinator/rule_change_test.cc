#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/job_record.h"

namespace agg {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int32_t kWorkers = 8;

CombineOptions Options() {
  CombineOptions options;
  options.rule.rule = FindRule("mean");
  options.rule.kappa_limit = 123.0;
  options.schedule.learning_rate = 0.5;
  options.shadow_rules.resize(1);
  return options;
}

std::string ErrorOf(const RuleChange& change) {
  const absl::Status status =
      ChangedCombination(Options(), change, kWorkers).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(RuleChangeTest, ARuleComesWithItsScopeAndKeepsTheRest) {
  RuleChange change;
  change.rule = "adacons";
  const auto adacons = ChangedCombination(Options(), change, kWorkers);
  ASSERT_TRUE(adacons.ok()) << adacons.status();
  EXPECT_EQ(NamesOf(*adacons), (CombinationNames{"adacons", "global", "none"}));
  EXPECT_EQ(adacons->rule.kappa_limit, 123.0);
  EXPECT_EQ(adacons->schedule.learning_rate, 0.5);
  EXPECT_THAT(adacons->shadow_rules, SizeIs(1));
  change.scope = "per_tensor";
  EXPECT_EQ(NamesOf(*ChangedCombination(Options(), change, kWorkers)),
            (CombinationNames{"adacons", "per_tensor", "none"}));
}

TEST(RuleChangeTest, TheSameRuleKeepsAnUnusualScope) {
  CombineOptions options = Options();
  options.rule.scope = Scope::kGlobal;
  RuleChange change;
  change.rule = "mean";
  change.step_scale = "linear";
  EXPECT_EQ(NamesOf(*ChangedCombination(options, change, kWorkers)),
            (CombinationNames{"mean", "global", "linear"}));
}

TEST(RuleChangeTest, NumbersChangeAlone) {
  RuleChange change;
  change.learning_rate = 0.25;
  const auto rate = ChangedCombination(Options(), change, kWorkers);
  ASSERT_TRUE(rate.ok());
  EXPECT_EQ(rate->schedule.learning_rate, 0.25);
  EXPECT_EQ(NamesOf(*rate), NamesOf(Options()));
  change.rule = "adacons";
  change.adacons_beta = 0.5;
  change.adacons_rescale = "match_mean";
  const auto adacons = ChangedCombination(Options(), change, kWorkers);
  ASSERT_TRUE(adacons.ok());
  EXPECT_EQ(adacons->rule.adacons.beta, 0.5);
  EXPECT_EQ(adacons->rule.adacons.rescale, AdaconsRescale::kMatchMean);
}

TEST(RuleChangeTest, ErrorsSayWhatIsAllowed) {
  EXPECT_THAT(ErrorOf({}), HasSubstr("nothing to change"));
  RuleChange change;
  change.rule = "median";
  EXPECT_THAT(ErrorOf(change),
              HasSubstr("rule is \"median\"; allowed: \"sum\""));
  change.rule = "adasum";
  change.scope = "local";
  EXPECT_THAT(ErrorOf(change), HasSubstr("\"local\""));
  change.scope.reset();
  change.step_scale = "cubic";
  EXPECT_THAT(ErrorOf(change), HasSubstr("\"cubic\""));
  // The gain is that of a mean: as in a configuration.
  change.step_scale = "adascale";
  EXPECT_THAT(ErrorOf(change), HasSubstr("force: true"));
  change.force_step_scale = true;
  EXPECT_TRUE(ChangedCombination(Options(), change, kWorkers).ok());
  change.adacons_beta = 0.5;
  EXPECT_THAT(ErrorOf(change), HasSubstr("the rule is \"adasum\""));
  change.rule = "adacons";
  change.adacons_beta = 1.0;
  EXPECT_THAT(ErrorOf(change), HasSubstr("beta"));
  change = RuleChange();
  change.learning_rate = -1.0;
  EXPECT_THAT(ErrorOf(change), HasSubstr("learning_rate.rate is -1"));
}

TEST(RuleChangeTest, KrumComesWithItsOptions) {
  RuleChange change;
  change.rule = "multi_krum";
  change.krum_byzantine_workers = 2;
  change.krum_selected = 3;
  const auto several = ChangedCombination(Options(), change, kWorkers);
  ASSERT_TRUE(several.ok()) << several.status();
  EXPECT_EQ(several->rule.krum.byzantine_workers, 2);
  EXPECT_EQ(several->rule.krum.selected, 3);
  change.rule = "krum";
  EXPECT_THAT(ErrorOf(change),
              HasSubstr("krum_selected is 3; allowed: with rule "
                        "\"multi_krum\"; the rule is \"krum\""));
  change.krum_selected.reset();
  EXPECT_TRUE(ChangedCombination(Options(), change, kWorkers).ok());
  change.rule = "mean";
  EXPECT_THAT(ErrorOf(change),
              HasSubstr("krum_byzantine_workers is 2; allowed: with rule "
                        "\"krum\" or \"multi_krum\""));
  change.rule = "krum";
  change.krum_byzantine_workers = -1;
  EXPECT_THAT(ErrorOf(change), HasSubstr("krum.byzantine_workers is -1"));
}

// As a configuration's default: what the guarantee allows, at most 1.
TEST(RuleChangeTest, KrumThatIsNewComesWithTheDefaultOfItsWorkers) {
  RuleChange change;
  change.rule = "krum";
  for (const int32_t workers : {1, 2, 3, 4, 5, 6, 9}) {
    const auto made = ChangedCombination(Options(), change, workers);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->rule.krum.byzantine_workers, workers < 5 ? 0 : 1)
        << workers;
  }
  change.krum_byzantine_workers = 3;  // what is said stays
  auto krum = ChangedCombination(Options(), change, 4);
  ASSERT_TRUE(krum.ok()) << krum.status();
  EXPECT_EQ(krum->rule.krum.byzantine_workers, 3);
  // It stays with its like, and is new again behind another rule.
  change = RuleChange();
  change.rule = "multi_krum";
  krum = ChangedCombination(*krum, change, 4);
  ASSERT_TRUE(krum.ok()) << krum.status();
  EXPECT_EQ(krum->rule.krum.byzantine_workers, 3);
  change.rule = "mean";
  krum = ChangedCombination(*krum, change, 4);
  ASSERT_TRUE(krum.ok()) << krum.status();
  change.rule = "krum";
  krum = ChangedCombination(*krum, change, 4);
  ASSERT_TRUE(krum.ok()) << krum.status();
  EXPECT_EQ(krum->rule.krum.byzantine_workers, 0);
}

// As after a restart, which knows the options of the rule in effect alone.
TEST(RuleChangeTest, OptionsEndWithTheirRule) {
  CombineOptions options = Options();
  options.rule.adacons.epsilon = 1e-6;
  const auto change_to = [&](RuleChange change, const char* rule) {
    change.rule = rule;
    const auto changed = ChangedCombination(options, change, kWorkers);
    ASSERT_TRUE(changed.ok()) << changed.status();
    options = *changed;
  };
  RuleChange several;
  several.krum_selected = 2;
  change_to(several, "multi_krum");
  change_to({}, "multi_krum");
  EXPECT_EQ(options.rule.krum.selected, 2);
  change_to({}, "krum");
  change_to({}, "multi_krum");
  EXPECT_EQ(options.rule.krum.selected, 0);

  RuleChange momentum;
  momentum.adacons_beta = 0.5;
  momentum.adacons_rescale = "match_mean";
  change_to(momentum, "adacons");
  change_to({}, "adacons");
  EXPECT_EQ(options.rule.adacons.beta, 0.5);
  EXPECT_EQ(options.rule.adacons.rescale, AdaconsRescale::kMatchMean);
  change_to({}, "mean");
  change_to({}, "adacons");
  EXPECT_EQ(options.rule.adacons.beta, AdaconsOptions().beta);
  EXPECT_EQ(options.rule.adacons.rescale, AdaconsRescale::kNone);
  EXPECT_EQ(options.rule.adacons.epsilon, 1e-6);
}

TEST(RuleChangeTest, MomentumIsOfOneRuleAveragesAreOfTheGradients) {
  CombineState state;
  state.rule.resize(1);
  state.shadow_rules.resize(1);
  state.step_scale.variance = 3.0;
  state.step_scale.tau = 7.0;
  CombineOptions adacons = Options();
  adacons.rule.rule = FindRule("adacons");
  adacons.rule.scope = Scope::kGlobal;
  CombineOptions after = adacons;
  after.step_scale.kind = StepScale::kLinear;
  after.schedule.learning_rate = 2.0;
  after.rule.kappa_limit = 9.0;
  CarryState(adacons, after, &state);
  EXPECT_THAT(state.rule, SizeIs(1));
  for (const auto& other : {&AdaconsOptions::beta, &AdaconsOptions::epsilon}) {
    CombineState copy = state;
    after = adacons;
    after.rule.adacons.*other *= 0.5;
    CarryState(adacons, after, &copy);
    EXPECT_THAT(copy.rule, IsEmpty());
  }
  after = adacons;
  after.rule.scope = Scope::kPerTensor;
  CarryState(adacons, after, &state);
  EXPECT_THAT(state.rule, IsEmpty());
  EXPECT_THAT(state.shadow_rules, SizeIs(1));
  EXPECT_EQ(state.step_scale.variance, 3.0);
  EXPECT_EQ(state.step_scale.tau, 7.0);
}

}  // namespace
}  // namespace agg
