// What the optimizers' steps come to: against their transcription in double,
// and against sequences worked by hand.
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/optimizer_step.h"
#include "kernels/optimizer_table.h"
#include "tests/conformance/backend_conformance.h"
#include "tests/conformance/optimizer_sequences.h"
#include "tests/conformance/oracle.h"
#include "tests/conformance/update_run.h"

namespace agg {
namespace {

constexpr double kFloatUnit = 0x1p-24;  // half an ulp of float32

struct OptimizerCase {
  const char* name;
  OptimizerOptions options;
  float weight_decay;
  float trust;
};

std::vector<OptimizerCase> AllOptimizers() {
  std::vector<OptimizerCase> cases;
  const auto add = [&cases](const char* name, OptimizerKind kind,
                            float momentum, bool nesterov, float weight_decay,
                            float trust) {
    OptimizerCase c{name, OptimizerOptions(), weight_decay, trust};
    c.options.kind = kind;
    c.options.momentum = momentum;
    c.options.nesterov = nesterov;
    c.options.initial_accumulator = 0.1f;
    cases.push_back(c);
  };
  using Kind = OptimizerKind;
  add("none", Kind::kNone, 0, false, 0, 1);
  add("add", Kind::kAdd, 0, false, 0, 1);
  add("add momentum", Kind::kAdd, 0.9f, false, 0, 1);
  add("diloco", Kind::kAdd, 0.9f, true, 0, 1);
  add("sgd", Kind::kSgd, 0, false, 0, 1);
  add("sgd decay", Kind::kSgd, 0, false, 0.1f, 1);
  add("sgd momentum", Kind::kSgd, 0.9f, false, 0.1f, 1);
  add("sgd nesterov", Kind::kSgd, 0.9f, true, 0.1f, 1);
  add("adam", Kind::kAdam, 0, false, 0, 1);
  add("adam decay", Kind::kAdam, 0, false, 0.1f, 1);
  add("adamw", Kind::kAdamW, 0, false, 0.1f, 1);
  add("adagrad", Kind::kAdagrad, 0, false, 0.1f, 1);
  add("lars", Kind::kLars, 0, false, 0.1f, 0.3f);
  add("lars momentum", Kind::kLars, 0.9f, false, 0.1f, 0.3f);
  add("lars nesterov", Kind::kLars, 0.9f, true, 0.1f, 0.3f);
  add("lamb", Kind::kLamb, 0, false, 0.1f, 2.5f);
  return cases;
}

// Steps a backend and the double transcription side by side. A step in
// float32 rounds some ten times, each time by at most half an ulp of the
// parameter or of the largest change (momentum's sums are at most that): 16
// half ulps of their sum per step, which add up.
TEST_P(BackendConformance, EveryOptimizerFollowsItsTranscription) {
  constexpr int64_t kNumElements = 1500;
  for (const OptimizerCase& c : AllOptimizers()) {
    SCOPED_TRACE(c.name);
    std::normal_distribution<float> normal;
    std::vector<float> seed(kNumElements);
    for (float& parameter : seed) parameter = normal(random_);
    UpdateRun run(backend_.get(), c.options, {{0, kNumElements}});
    run.Load(seed);
    oracle::Optimizer oracle(c.options,
                             std::vector<double>(seed.begin(), seed.end()));
    double tolerance = 0.0;
    for (int step = 1; step <= 6; ++step) {
      const TestRows rows = RandomRows(DType::kF32, 1, kNumElements);
      RangeStep range_step;
      range_step.learning_rate = 0.05f / static_cast<float>(step);
      range_step.weight_decay = c.weight_decay;
      range_step.trust = c.trust;
      oracle.Step(rows.values(0), range_step.learning_rate, c.weight_decay,
                  c.trust);
      ASSERT_TRUE(run.Update(rows, {1.0}, range_step).ok());
      const std::vector<float> snapshot = run.Snapshot();
      tolerance += 16 * kFloatUnit * (4.0 + oracle.largest_change());
      for (int64_t k = 0; k < kNumElements; ++k) {
        ASSERT_NEAR(snapshot[k], oracle.parameters()[k], tolerance)
            << "element " << k << " after step " << step;
      }
    }
  }
}

TEST(OptimizerSequences, AreThereForEveryOptimizer) {
  std::set<OptimizerKind> found;
  for (const OptimizerSequence& sequence : OptimizerSequences()) {
    found.insert(sequence.options.kind);
  }
  for (const OptimizerLine& line : kOptimizers) {
    EXPECT_EQ(found.count(line.kind), 1u) << line.name;
  }
}

TEST_P(BackendConformance, OptimizersFollowTheirSequences) {
  for (const OptimizerSequence& c : OptimizerSequences()) {
    SCOPED_TRACE(c.name);
    UpdateRun run(backend_.get(), c.options, {{0, 1}});
    run.Load({1.0f});
    for (int step = 0; step < 2; ++step) {
      TestRows rows(backend_.get(), DType::kF32, 1, 1);
      rows.Set(0, 0, step == 0 ? 0.5f : -0.25f);
      rows.Land();
      RangeStep range_step;
      range_step.learning_rate = 0.1f;
      range_step.weight_decay = c.weight_decay;
      ASSERT_TRUE(run.Update(rows, {1.0}, range_step).ok());
      EXPECT_NEAR(run.Snapshot()[0], c.after[step], 2e-6) << "step " << step;
    }
  }
}

// lars: v <- momentum * v + rate * trust * (g + decay * w), w <- w - v: a
// rate that drops does not shrink the steps already in v.
TEST_P(BackendConformance, LarsKeepsPastRatesInItsMomentum) {
  OptimizerOptions options;
  options.kind = OptimizerKind::kLars;
  options.momentum = 0.5f;
  UpdateRun run(backend_.get(), options, {{0, 1}});
  run.Load({1.0f});
  TestRows rows(backend_.get(), DType::kF32, 1, 1);
  rows.Set(0, 0, 1.0f);
  rows.Land();
  RangeStep range_step;
  range_step.learning_rate = 0.5f;
  range_step.trust = 0.5f;
  ASSERT_TRUE(run.Update(rows, {1.0}, range_step).ok());
  EXPECT_EQ(run.Snapshot()[0], 0.75f);
  range_step.learning_rate = 0.0f;
  ASSERT_TRUE(run.Update(rows, {1.0}, range_step).ok());
  EXPECT_EQ(run.Snapshot()[0], 0.625f);
}

}  // namespace
}  // namespace agg
