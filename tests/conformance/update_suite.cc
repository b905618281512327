#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/conformance/backend_conformance.h"
#include "tests/conformance/oracle.h"
#include "tests/conformance/update_run.h"

namespace agg {
namespace {

constexpr double kFloatUnit = 0x1p-24;  // half an ulp of float32
constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

// combined = float(sum in double): P roundings in double, one to float.
void ExpectCombined(const TestRows& rows,
                    const std::vector<double>& coefficients,
                    const std::vector<float>& combined) {
  std::vector<std::vector<double>> values;
  for (int64_t i = 0; i < rows.num_rows(); ++i) {
    values.push_back(rows.values(i));
  }
  const oracle::Combination exact = oracle::Combine(values, coefficients);
  const double chain = 0x1p-53 * static_cast<double>(rows.num_rows() + 1);
  for (size_t k = 0; k < combined.size(); ++k) {
    const double tolerance = kFloatUnit * std::fabs(exact.sum[k]) +
                             chain * exact.magnitude[k] + 0x1p-149;
    ASSERT_NEAR(combined[k], exact.sum[k], tolerance) << "element " << k;
  }
}

TEST_P(BackendConformance, CombinesEveryWorkerCountAndDType) {
  OptimizerOptions none;
  none.kind = OptimizerKind::kNone;
  for (const DType dtype : kDTypes) {
    for (int64_t num_rows = 1; num_rows <= 33; ++num_rows) {
      const TestRows rows = RandomRows(dtype, num_rows, 1000);
      std::vector<double> coefficients;
      std::normal_distribution<double> normal;
      for (int64_t i = 0; i < num_rows; ++i) {
        coefficients.push_back(normal(random_));
      }
      UpdateRun run(backend_.get(), none, {{0, 1000}});
      run.Load(std::vector<float>(1000, 7.0f));
      ASSERT_TRUE(run.Update(rows, coefficients, RangeStep()).ok());
      ExpectCombined(rows, coefficients, run.Snapshot());
    }
  }
}

TEST_P(BackendConformance, CombinesEverySize) {
  OptimizerOptions none;
  none.kind = OptimizerKind::kNone;
  for (const int64_t num_elements : {1, 7, 8, 31, 511, 513, 65537, 140000}) {
    const TestRows rows = RandomRows(DType::kF32, 3, num_elements);
    UpdateRun run(backend_.get(), none, {{0, num_elements}});
    run.Load(std::vector<float>(num_elements, 0.0f));
    const std::vector<double> coefficients = {0.25, -1.0, 1e-3};
    ASSERT_TRUE(run.Update(rows, coefficients, RangeStep()).ok());
    ExpectCombined(rows, coefficients, run.Snapshot());
  }
}

// Large requests may be published by another kind of store.
TEST_P(BackendConformance, PublishesALargeSnapshotWhole) {
  constexpr int64_t kNumElements = (int64_t{4} << 20) + 13;
  OptimizerOptions none;
  none.kind = OptimizerKind::kNone;
  TestRows rows(backend_.get(), DType::kF32, 1, kNumElements);
  for (int64_t k = 0; k < kNumElements; ++k) {
    rows.Set(0, k, static_cast<float>(k));
  }
  rows.Land();
  UpdateRun run(backend_.get(), none, {{0, kNumElements}});
  run.Load(std::vector<float>(kNumElements, -1.0f));
  ASSERT_TRUE(run.Update(rows, {1.0}, RangeStep()).ok());
  const std::vector<float> snapshot = run.Snapshot();
  for (int64_t k = 0; k < kNumElements; ++k) {
    ASSERT_EQ(snapshot[k], static_cast<float>(k));
  }
}

// Weights may be 1e60 when norms differ by as much (algorithms.md 5.3): they
// must not pass through float32 before they multiply.
TEST_P(BackendConformance, CombinesWithHugeCoefficients) {
  OptimizerOptions none;
  none.kind = OptimizerKind::kNone;
  TestRows rows(backend_.get(), DType::kF32, 2, 100);
  for (int64_t k = 0; k < 100; ++k) {
    rows.Set(0, k, 1e-30f * static_cast<float>(k + 1));
    rows.Set(1, k, 1e30f * static_cast<float>(100 - k));
  }
  rows.Land();
  UpdateRun run(backend_.get(), none, {{0, 100}});
  run.Load(std::vector<float>(100, 0.0f));
  const std::vector<double> coefficients = {1e60, 0.5};
  ASSERT_TRUE(run.Update(rows, coefficients, RangeStep()).ok());
  ExpectCombined(rows, coefficients, run.Snapshot());
  // 1e60 * 1e-30 + 0.5 * 1e32
  EXPECT_NEAR(run.Snapshot()[0] / 5.1e31, 1.0, 1e-6);
}

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

// Sequences worked by hand: parameter 1, gradients 0.5 then -0.25, learning
// rate 0.1, no decay unless said.
struct HandCase {
  const char* name;
  OptimizerOptions options;
  float weight_decay;
  double after[2];
};

std::vector<HandCase> HandCases() {
  std::vector<HandCase> cases;
  const auto add = [&cases](const char* name, OptimizerKind kind,
                            float momentum, bool nesterov, float weight_decay,
                            double first, double second) {
    HandCase c{name, OptimizerOptions(), weight_decay, {first, second}};
    c.options.kind = kind;
    c.options.momentum = momentum;
    c.options.nesterov = nesterov;
    cases.push_back(c);
  };
  using Kind = OptimizerKind;
  // 1 - .1 * .5; - .1 * -.25
  add("sgd", Kind::kSgd, 0, false, 0, 0.95, 0.975);
  // decayed: .5 + .2 * 1 = .7; -.25 + .2 * .93 = -.064
  add("sgd decay", Kind::kSgd, 0, false, 0.2f, 0.93, 0.9364);
  // buffer .5; .9 * .5 - .25 = .2
  add("sgd momentum", Kind::kSgd, 0.9f, false, 0, 0.95, 0.93);
  // .5 + .9 * .5 = .95; -.25 + .9 * .2 = -.07
  add("sgd nesterov", Kind::kSgd, 0.9f, true, 0, 0.905, 0.912);
  // the same directions, added
  add("diloco", Kind::kAdd, 0.9f, true, 0, 1.095, 1.088);
  add("none", Kind::kNone, 0, false, 0, 0.5, -0.25);
  // m^ = g, v^ = g^2 at first: a step of the rate. Then m = .9 * .05 - .025 =
  // .02, m^ = .02 / .19; v = .999 * .00025 + .0000625 = .00031225, v^ =
  // .00031225 / .001999 = .156203; .1 * .105263 / .395225 = .026634
  add("adam", Kind::kAdam, 0, false, 0, 0.9, 0.873366);
  // shrink by 1 - .1 * .2 first: .98 - .1; .88 * .98 - .026634
  add("adamw", Kind::kAdamW, 0, false, 0.2f, 0.88, 0.835766);
  // sum .25: a step of the rate; sum .3125: .1 * .25 / .559017 = .044721
  add("adagrad", Kind::kAdagrad, 0, false, 0, 0.9, 0.944721);
  // adam's direction plus decay: 1 + .2 * 1; .26634 + .2 * .88 = .44234
  add("lamb", Kind::kLamb, 0, false, 0.2f, 0.88, 0.835766);
  return cases;
}

TEST_P(BackendConformance, HandWorkedSequences) {
  for (const HandCase& c : HandCases()) {
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

// Every range has its own coefficients, rate, decay and trust; elements of no
// range stay as they are.
TEST_P(BackendConformance, RangesAreIndependent) {
  std::vector<int64_t> sizes(800);
  for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = (i * 37) % 101;
  const std::vector<ElementRange> ranges = LayOut(sizes);
  const TestRows rows = RandomRows(DType::kF32, 2, LayoutElements(ranges));
  OptimizerOptions options;
  options.kind = OptimizerKind::kSgd;
  UpdateRun run(backend_.get(), options, ranges);
  run.Load(std::vector<float>(LayoutElements(ranges), 1.0f));
  std::vector<UpdateRange> updates;
  std::vector<std::vector<double>> coefficients;
  for (size_t r = 0; r < ranges.size(); r += 2) {
    coefficients.push_back({static_cast<double>(r % 7), -0.5});
  }
  for (size_t r = 0; r < ranges.size(); r += 2) {
    UpdateRange update;
    update.range = ranges[r];
    update.coefficients = coefficients[r / 2];
    update.learning_rate = 0.01f * static_cast<float>(r % 5);
    update.weight_decay = 0.1f * static_cast<float>(r % 3);
    updates.push_back(update);
  }
  ASSERT_TRUE(run.Update(rows, updates).ok());
  const std::vector<float> snapshot = run.Snapshot();
  for (size_t r = 0; r < ranges.size(); r += 2) {
    const UpdateRange& update = updates[r / 2];
    for (int64_t k = ranges[r].begin;
         k < ranges[r].begin + ranges[r].num_elements; ++k) {
      const double combined =
          (r % 7) * rows.values(0)[k] - 0.5 * rows.values(1)[k];
      const double expected =
          1.0 - update.learning_rate * (combined + update.weight_decay);
      ASSERT_NEAR(snapshot[k], expected, 1e-6) << "range " << r;
    }
  }
  for (size_t r = 1; r < ranges.size(); r += 2) {  // loaded, never updated
    for (int64_t k = ranges[r].begin;
         k < ranges[r].begin + ranges[r].num_elements; ++k) {
      ASSERT_EQ(snapshot[k], UpdateRun::kUntouched) << "range " << r;
    }
  }
}

TEST_P(BackendConformance, UpdateRefusesWhatDoesNotFit) {
  OptimizerOptions adam;
  adam.kind = OptimizerKind::kAdam;
  const TestRows rows = RandomRows(DType::kF32, 2, 64);
  UpdateRun run(backend_.get(), adam, {{0, 64}});
  run.Load(std::vector<float>(64, 1.0f));
  const auto code = [&](const std::vector<double>& coefficients,
                        const UpdateRun::Change& change) {
    return run.Update(rows, coefficients, RangeStep(), change).code();
  };
  using absl::StatusCode;
  EXPECT_EQ(code({1.0, 1.0}, {}), StatusCode::kOk);
  EXPECT_EQ(code({1.0}, {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({1.0, 1.0}, [](UpdateRequest* r) { r->state1 = nullptr; }),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code({1.0, 1.0}, [](UpdateRequest* r) { r->snapshot = nullptr; }),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code({1.0, 1.0}, [](UpdateRequest* r) { r->step = 0; }),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace agg
