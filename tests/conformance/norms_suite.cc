#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/conformance/backend_conformance.h"
#include "tests/conformance/oracle.h"
#include "tests/conformance/update_run.h"

namespace agg {
namespace {

std::vector<double> Widened(const std::vector<float>& values) {
  return std::vector<double>(values.begin(), values.end());
}

// Against the transcription, over steps, so that lamb's moments count.
TEST_P(BackendConformance, NormsFollowTheTranscription) {
  for (const OptimizerKind kind :
       {OptimizerKind::kLars, OptimizerKind::kLamb}) {
    for (const int64_t num_elements : {1, 9, 1000, 70001}) {
      OptimizerOptions options;
      options.kind = kind;
      options.momentum = kind == OptimizerKind::kLars ? 0.9f : 0.0f;
      std::normal_distribution<float> normal;
      std::vector<float> seed(num_elements);
      for (float& parameter : seed) parameter = normal(random_);
      UpdateRun run(backend_.get(), options, {{0, num_elements}});
      run.Load(seed);
      oracle::Optimizer oracle(options, Widened(seed));
      RangeStep step;
      step.learning_rate = 0.01f;
      step.weight_decay = 0.1f;
      step.trust = 0.5f;  // of the Update; Norms does not use it
      for (int round = 0; round < 3; ++round) {
        const TestRows rows = RandomRows(DType::kF32, 1, num_elements);
        const RangeNorms norms = run.Norms(rows, {1.0}, step)[0];
        // Float32 steps before, and moments in float32 now: relative errors
        // of elements, hence of the sum of squares.
        const double parameters = oracle.ParameterNormSquared();
        const double update =
            oracle.UpdateNormSquared(rows.values(0), step.weight_decay);
        EXPECT_NEAR(norms.parameter_norm_squared, parameters,
                    1e-5 * parameters);
        EXPECT_NEAR(norms.update_norm_squared, update, 1e-5 * update);
        oracle.Step(rows.values(0), step.learning_rate, step.weight_decay,
                    step.trust);
        ASSERT_TRUE(run.Update(rows, {1.0}, step).ok());
      }
    }
  }
}

// Norms stores nothing: a step after it is the step without it.
TEST_P(BackendConformance, NormsChangeNothing) {
  OptimizerOptions options;
  options.kind = OptimizerKind::kLamb;
  const TestRows rows = RandomRows(DType::kBF16, 3, 5000);
  const std::vector<double> coefficients = {0.5, -1.5, 2.0};
  std::vector<std::vector<float>> results;
  for (const bool with_norms : {false, true}) {
    UpdateRun run(backend_.get(), options, {{0, 5000}});
    run.Load(std::vector<float>(5000, 1.0f));
    for (int round = 0; round < 3; ++round) {
      if (with_norms) run.Norms(rows, coefficients, RangeStep());
      ASSERT_TRUE(run.Update(rows, coefficients, RangeStep()).ok());
    }
    results.push_back(run.Snapshot());
  }
  EXPECT_EQ(results[0], results[1]);
}

// What Update applied, recovered from a step of rate 1 and trust 1: the norm
// of lamb's direction is that of the change.
TEST_P(BackendConformance, NormsAreThoseOfWhatUpdateApplies) {
  OptimizerOptions options;
  options.kind = OptimizerKind::kLamb;
  const std::vector<ElementRange> ranges = LayOut({100, 1, 3000});
  const TestRows rows = RandomRows(DType::kF32, 2, LayoutElements(ranges));
  std::vector<float> seed(LayoutElements(ranges), 0.5f);
  UpdateRun run(backend_.get(), options, ranges);
  run.Load(seed);
  RangeStep step;
  step.weight_decay = 0.2f;
  const std::vector<RangeNorms> norms = run.Norms(rows, {0.5, 0.5}, step);
  ASSERT_TRUE(run.Update(rows, {0.5, 0.5}, step).ok());
  const std::vector<float> snapshot = run.Snapshot();
  for (size_t r = 0; r < ranges.size(); ++r) {
    double change = 0.0;
    for (int64_t k = 0; k < ranges[r].num_elements; ++k) {
      const double moved = snapshot[ranges[r].begin + k] - 0.5;
      change += moved * moved;
    }
    EXPECT_NEAR(norms[r].update_norm_squared, change, 1e-6 * change);
    EXPECT_EQ(norms[r].parameter_norm_squared, 0.25 * ranges[r].num_elements);
  }
}

TEST_P(BackendConformance, NormsOfNonFiniteGradientsAreNonFinite) {
  OptimizerOptions options;
  options.kind = OptimizerKind::kLars;
  TestRows rows(backend_.get(), DType::kF32, 1, 100);
  rows.Set(0, 99, std::numeric_limits<float>::quiet_NaN());
  rows.Land();
  UpdateRun run(backend_.get(), options, {{0, 100}});
  run.Load(std::vector<float>(100, 2.0f));
  const RangeNorms norms = run.Norms(rows, {1.0}, RangeStep())[0];
  EXPECT_FALSE(std::isfinite(norms.update_norm_squared));
  EXPECT_EQ(norms.parameter_norm_squared, 400.0);
}

}  // namespace
}  // namespace agg
