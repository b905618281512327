#include "kernels/cuda/step_formula.h"

#include "gtest/gtest.h"

namespace agg::cuda {
namespace {

StepFormula Choose(OptimizerKind kind, float momentum, bool nesterov) {
  OptimizerOptions options;
  options.kind = kind;
  options.momentum = momentum;
  options.nesterov = nesterov;
  return ChooseFormula(options);
}

TEST(StepFormulaTest, MomentumAndNesterovChooseAmongTheThreeThatHaveThem) {
  using Kind = OptimizerKind;
  EXPECT_EQ(Choose(Kind::kAdd, 0, false), StepFormula::kAdd);
  EXPECT_EQ(Choose(Kind::kAdd, 0.9f, false), StepFormula::kAddMomentum);
  EXPECT_EQ(Choose(Kind::kAdd, 0.9f, true), StepFormula::kAddNesterov);
  EXPECT_EQ(Choose(Kind::kSgd, 0, false), StepFormula::kSgd);
  EXPECT_EQ(Choose(Kind::kSgd, 0.9f, false), StepFormula::kSgdMomentum);
  EXPECT_EQ(Choose(Kind::kSgd, 0.9f, true), StepFormula::kSgdNesterov);
  EXPECT_EQ(Choose(Kind::kLars, 0.9f, false), StepFormula::kLarsMomentum);
  EXPECT_EQ(Choose(Kind::kLars, 0.9f, true), StepFormula::kLarsNesterov);
  // Without a momentum buffer there is none to touch.
  EXPECT_EQ(Choose(Kind::kSgd, 0, true), StepFormula::kSgd);
  EXPECT_EQ(Choose(Kind::kLars, 0, false), StepFormula::kSgd);
}

TEST(StepFormulaTest, TheOthersIgnoreMomentum) {
  using Kind = OptimizerKind;
  EXPECT_EQ(Choose(Kind::kNone, 0.9f, true), StepFormula::kNone);
  EXPECT_EQ(Choose(Kind::kAdam, 0.9f, true), StepFormula::kAdam);
  EXPECT_EQ(Choose(Kind::kAdamW, 0.9f, true), StepFormula::kAdamW);
  EXPECT_EQ(Choose(Kind::kAdagrad, 0.9f, true), StepFormula::kAdagrad);
  EXPECT_EQ(Choose(Kind::kLamb, 0.9f, true), StepFormula::kLamb);
}

}  // namespace
}  // namespace agg::cuda
