#include "kernels/step_formula.h"

#include <cmath>
#include <type_traits>

#include "gtest/gtest.h"
#include "kernels/step_constants.h"

namespace agg {
namespace {

// Whether a visitor meets the type Expected.
template <class Expected>
struct IsFormula {
  template <class Formula>
  bool operator()(Formula /*formula*/) const {
    return std::is_same_v<Formula, Expected>;
  }
};

template <class Expected>
bool Chooses(OptimizerKind kind, float momentum, bool nesterov) {
  OptimizerOptions options;
  options.kind = kind;
  options.momentum = momentum;
  options.nesterov = nesterov;
  return VisitFormula(ChooseFormula(options), IsFormula<Expected>());
}

TEST(StepFormulaTest, MomentumAndNesterovChooseAmongTheThreeThatHaveThem) {
  using Kind = OptimizerKind;
  EXPECT_TRUE(Chooses<AddFormula>(Kind::kAdd, 0, false));
  EXPECT_TRUE(Chooses<AddMomentumFormula<false>>(Kind::kAdd, 0.9f, false));
  EXPECT_TRUE(Chooses<AddMomentumFormula<true>>(Kind::kAdd, 0.9f, true));
  EXPECT_TRUE(Chooses<SgdFormula>(Kind::kSgd, 0, false));
  EXPECT_TRUE(Chooses<SgdMomentumFormula<false>>(Kind::kSgd, 0.9f, false));
  EXPECT_TRUE(Chooses<SgdMomentumFormula<true>>(Kind::kSgd, 0.9f, true));
  EXPECT_TRUE(Chooses<LarsMomentumFormula<false>>(Kind::kLars, 0.9f, false));
  EXPECT_TRUE(Chooses<LarsMomentumFormula<true>>(Kind::kLars, 0.9f, true));
  // Without a momentum buffer there is none to touch.
  EXPECT_TRUE(Chooses<SgdFormula>(Kind::kSgd, 0, true));
  EXPECT_TRUE(Chooses<SgdFormula>(Kind::kLars, 0, false));
}

TEST(StepFormulaTest, TheOthersIgnoreMomentum) {
  using Kind = OptimizerKind;
  EXPECT_TRUE(Chooses<NoneFormula>(Kind::kNone, 0.9f, true));
  EXPECT_TRUE(Chooses<AdamFormula>(Kind::kAdam, 0.9f, true));
  EXPECT_TRUE(Chooses<AdamWFormula>(Kind::kAdamW, 0.9f, true));
  EXPECT_TRUE(Chooses<AdagradFormula>(Kind::kAdagrad, 0.9f, true));
  EXPECT_TRUE(Chooses<LambFormula>(Kind::kLamb, 0.9f, true));
}

TEST(StepFormulaTest, StateIsThatOfTheFormula) {
  for (const OptimizerLine& line : kOptimizers) {
    for (const float momentum : {0.0f, 0.9f}) {
      OptimizerOptions options;
      options.kind = line.kind;
      options.momentum = momentum;
      const auto num_arrays = [](auto formula) {
        return decltype(formula)::kStateArrays;
      };
      EXPECT_EQ(OptimizerStateArrays(options),
                VisitFormula(ChooseFormula(options), num_arrays))
          << line.name;
    }
  }
}

TEST(StepFormulaTest, OnlyAdagradStartsFromAnAccumulator) {
  for (const OptimizerLine& line : kOptimizers) {
    OptimizerOptions options;
    options.kind = line.kind;
    options.initial_accumulator = 0.5f;
    const bool is_adagrad = line.kind == OptimizerKind::kAdagrad;
    EXPECT_EQ(InitialState0(options), is_adagrad ? 0.5f : 0.0f) << line.name;
  }
}

TEST(StepFormulaTest, LinesAreFoundByKindAndFieldsByTheirFullNames) {
  for (const OptimizerLine& line : kOptimizers) {
    EXPECT_EQ(LineOf(line.kind).name, line.name);
  }
  const OptimizerLine& sgd = LineOf(OptimizerKind::kSgd);
  EXPECT_TRUE(sgd.Uses("momentum"));
  EXPECT_TRUE(sgd.Uses("nesterov"));
  EXPECT_TRUE(sgd.Uses("weight_decay"));
  EXPECT_FALSE(sgd.Uses("weight"));
  EXPECT_FALSE(sgd.Uses("decay"));
  EXPECT_FALSE(sgd.Uses("momentum_"));
  EXPECT_FALSE(LineOf(OptimizerKind::kNone).Uses("momentum"));
}

TEST(StepConstantsTest, BiasCorrectionsFollowTheirPowers) {
  OptimizerOptions adam;
  adam.kind = OptimizerKind::kAdam;
  for (const int64_t step : {1, 2, 3, 10, 1000, 1000000}) {
    const StepConstants c = MakeStepConstants(adam, step, 0.1f, 0.0f, 1.0f);
    const double bias1 = 1.0 - std::pow(static_cast<double>(0.9f), step);
    const double bias2 = 1.0 - std::pow(static_cast<double>(0.999f), step);
    EXPECT_FLOAT_EQ(c.inverse_bias1, 1.0 / bias1) << step;
    EXPECT_FLOAT_EQ(c.inverse_root_bias2, 1.0 / std::sqrt(bias2)) << step;
    EXPECT_FLOAT_EQ(c.adam_rate, -0.1 / bias1) << step;
  }
}

TEST(StepConstantsTest, TrustMultipliesTheRate) {
  OptimizerOptions lars;
  lars.kind = OptimizerKind::kLars;
  const StepConstants c = MakeStepConstants(lars, 1, 0.5f, 0.25f, 3.0f);
  EXPECT_EQ(c.rate, 1.5f);
  EXPECT_EQ(c.negative_rate, -1.5f);
  EXPECT_EQ(c.decay, 0.25f);
}

TEST(StepConstantsTest, AdamWShrinks) {
  const StepConstants c =
      MakeStepConstants(OptimizerOptions(), 1, 0.5f, 0.25f, 1.0f);
  EXPECT_EQ(c.shrink, 0.875f);
}

}  // namespace
}  // namespace agg
