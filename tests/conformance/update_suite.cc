#include <algorithm>
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

TEST_P(BackendConformance, CombinesEveryWorkerCountAndDType) {
  OptimizerOptions none;
  none.kind = OptimizerKind::kNone;
  for (const DType dtype : kRowDTypes) {
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
    for (const DType dtype : {DType::kF32, DType::kI8}) {
      const TestRows rows = RandomRows(dtype, 3, num_elements);
      UpdateRun run(backend_.get(), none, {{0, num_elements}});
      run.Load(std::vector<float>(num_elements, 0.0f));
      const std::vector<double> coefficients = {0.25, -1.0, 1e-3};
      ASSERT_TRUE(run.Update(rows, coefficients, RangeStep()).ok());
      ExpectCombined(rows, coefficients, run.Snapshot());
    }
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
  EXPECT_TRUE(run.all_finite());
  rows.Set(0, kNumElements / 2, std::numeric_limits<float>::infinity());
  rows.Land();
  ASSERT_TRUE(run.Update(rows, {1.0}, RangeStep()).ok());
  EXPECT_FALSE(run.all_finite());
}

// Weights may be 1e60 when norms differ by as much
// (server/combine/README.md 10.1): they must not pass through float32 before
// they multiply.
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

// Slices of one tensor are mostly treated alike, and a backend may take them
// for one range: but no further than they are alike.
TEST_P(BackendConformance, NeighboursAreTreatedAsTheyAsk) {
  constexpr int64_t kSlice = int64_t{3} << 14;
  constexpr int kNumSlices = 7;
  std::vector<ElementRange> ranges;
  for (int64_t r = 0; r < kNumSlices; ++r) {
    // The one before the last ends within a block of any backend's.
    const int64_t missing = r < kNumSlices - 2 ? 0 : 64;
    ranges.push_back({r * kSlice, kSlice - missing});
  }
  const int64_t num_elements = LayoutElements(ranges);
  const TestRows rows = RandomRows(DType::kF32, 2, num_elements);
  OptimizerOptions options;
  options.kind = OptimizerKind::kSgd;
  UpdateRun run(backend_.get(), options, ranges);
  run.Load(std::vector<float>(num_elements, 1.0f));
  const std::vector<double> usual = {0.5, -0.25}, other = {0.5, 0.75};
  std::vector<UpdateRange> updates;
  for (const ElementRange& range : ranges) {
    updates.push_back({range, usual, 0.5f, 0.0f, 1.0f});
  }
  updates[1].coefficients = other;
  updates[2].learning_rate = 0.25f;
  updates[3].weight_decay = 0.5f;
  ASSERT_TRUE(run.Update(rows, updates).ok());
  const std::vector<float> snapshot = run.Snapshot();
  for (const UpdateRange& update : updates) {
    for (int64_t k = update.range.begin;
         k < update.range.begin + update.range.num_elements; ++k) {
      const double combined = update.coefficients[0] * rows.values(0)[k] +
                              update.coefficients[1] * rows.values(1)[k];
      ASSERT_NEAR(snapshot[k],
                  1.0 - update.learning_rate * (combined + update.weight_decay),
                  1e-5)
          << k;
    }
  }
}

TEST_P(BackendConformance, SaysWhetherAllParametersAreFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  OptimizerOptions sgd;
  sgd.kind = OptimizerKind::kSgd;
  for (const int64_t num_elements : {1, 7, 40, 512, 515, 70001}) {
    for (const int64_t bad : {int64_t{0}, num_elements / 2, num_elements - 1}) {
      TestRows rows(backend_.get(), DType::kF32, 1, num_elements);
      rows.Set(0, bad, std::numeric_limits<float>::max());
      rows.Land();
      UpdateRun run(backend_.get(), sgd, {{0, num_elements}});
      run.Load(std::vector<float>(num_elements, 0.0f));
      ASSERT_TRUE(run.Update(rows, {1.0}, RangeStep()).ok());
      ASSERT_TRUE(run.all_finite()) << num_elements;
      // The gradient is finite, its step is not; and what is not finite stays
      // so, whatever comes.
      for (const float rate : {2.0f, 0.0f}) {
        RangeStep step;
        step.learning_rate = rate;
        ASSERT_TRUE(run.Update(rows, {1.0}, step).ok());
        ASSERT_FALSE(run.all_finite()) << bad << " of " << num_elements;
        ASSERT_FALSE(std::isfinite(run.Snapshot()[bad]));
      }
      for (const float value : {kInfinity, -kInfinity, std::nanf("")}) {
        run.Load(std::vector<float>(num_elements, 0.0f));
        ASSERT_TRUE(run.Update(rows, {1.0}, RangeStep()).ok());
        ASSERT_TRUE(run.all_finite());
        TestRows spoilt(backend_.get(), DType::kF32, 1, num_elements);
        spoilt.Set(0, bad, value);
        spoilt.Land();
        ASSERT_TRUE(run.Update(spoilt, {1.0}, RangeStep()).ok());
        ASSERT_FALSE(run.all_finite()) << bad << " of " << num_elements;
      }
    }
  }
}

// A narrowed snapshot holds less: what fits float32 alone counts as not finite.
TEST_P(BackendConformance, UpdateTellsWhatNarrowingMakesInfinite) {
  OptimizerOptions sgd;
  sgd.kind = OptimizerKind::kSgd;
  const struct {
    DType narrowed;
    float fits;
    float too_large;
  } kCases[] = {
      {DType::kF16, 65519.996f, 65520.0f},
      {DType::kBF16, 3.394e38f, 3.3961775e38f},
      {DType::kF32, std::numeric_limits<float>::max(),
       std::numeric_limits<float>::infinity()},
  };
  for (const auto& c : kCases) {
    for (const int64_t num_elements : {1, 7, 40, 512, 515, 70001}) {
      for (const int64_t at : {int64_t{0}, num_elements - 1}) {
        for (const float sign : {1.0f, -1.0f}) {
          UpdateRun run(backend_.get(), sgd, {{0, num_elements}}, c.narrowed);
          for (const bool fits : {true, false}) {
            TestRows rows(backend_.get(), DType::kF32, 1, num_elements);
            rows.Set(0, at, sign * (fits ? c.fits : c.too_large));
            rows.Land();
            run.Load(std::vector<float>(num_elements, 0.0f));
            ASSERT_TRUE(run.Update(rows, {1.0}, RangeStep()).ok());
            ASSERT_EQ(run.all_finite(), fits) << DTypeName(c.narrowed) << ", "
                                              << at << " of " << num_elements;
            if (c.narrowed == DType::kF32) continue;
            ASSERT_EQ(std::isinf(oracle::Widen(c.narrowed,
                                               run.NarrowedSnapshot()[at])),
                      !fits);
          }
        }
      }
    }
  }
}

// What no range has is not written, so that it does not count; nor do the
// elements behind a range's end, which a kernel may compute and not store.
TEST_P(BackendConformance, OnlyWrittenParametersHaveToBeFinite) {
  OptimizerOptions sgd;
  sgd.kind = OptimizerKind::kSgd;
  const std::vector<ElementRange> ranges = LayOut({41, 200, 70001});
  const int64_t num_elements = LayoutElements(ranges);
  std::vector<float> seed(num_elements, std::nanf(""));
  for (const ElementRange& range : {ranges[0], ranges[2]}) {
    std::fill_n(seed.begin() + range.begin, range.num_elements, 1.0f);
  }
  const TestRows rows = RandomRows(DType::kF32, 2, num_elements);
  UpdateRun run(backend_.get(), sgd, ranges);
  run.Load(seed);
  const std::vector<double> coefficients = {0.5, 0.5};
  const std::vector<UpdateRange> updates = {
      {ranges[0], coefficients, 0.1f, 0.0f, 1.0f},
      {ranges[2], coefficients, 0.1f, 0.0f, 1.0f}};
  ASSERT_TRUE(run.Update(rows, updates).ok());
  EXPECT_TRUE(run.all_finite());
  ASSERT_TRUE(run.Update(rows, coefficients, RangeStep()).ok());
  EXPECT_FALSE(run.all_finite());
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
