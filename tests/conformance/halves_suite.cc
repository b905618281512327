// Update in two halves: Combine, whose result goes to another process as well,
// and Step, which both processes take. Together they must have Update's bits.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/dtype.h"
#include "kernels/optimizer_step.h"
#include "kernels/optimizer_table.h"
#include "tests/conformance/backend_conformance.h"
#include "tests/conformance/update_run.h"

namespace agg {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One pattern for all NaN, whose payload is not promised.
uint32_t BitsOf(float value) {
  if (std::isnan(value)) value = std::numeric_limits<float>::quiet_NaN();
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

std::vector<uint32_t> BitsOf(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(BitsOf(value));
  return bits;
}

// Every formula: each optimizer, and those with momentum in three variants.
std::vector<OptimizerOptions> AllFormulas() {
  std::vector<OptimizerOptions> all;
  for (const OptimizerLine& line : kOptimizers) {
    OptimizerOptions options;
    options.kind = line.kind;
    options.initial_accumulator = 0.1f;
    all.push_back(options);
    if (!line.Uses("momentum")) continue;
    options.momentum = 0.9f;
    all.push_back(options);
    options.nesterov = true;
    all.push_back(options);
  }
  return all;
}

// Updates of all ranges, with coefficients, rates, decay and trust of their
// own. One range has zeros alone; one has so small ones that the sum rounds to
// zero, with its sign.
class Updates {
 public:
  Updates(const std::vector<ElementRange>& ranges, int64_t num_rows,
          std::mt19937* random) {
    std::normal_distribution<double> normal;
    coefficients_.resize(ranges.size());
    for (size_t r = 0; r < ranges.size(); ++r) {
      const double scale = r == 1 ? 0.0 : r == 2 ? -1e-60 : 1.0;
      for (int64_t i = 0; i < num_rows; ++i) {
        coefficients_[r].push_back(scale * normal(*random));
      }
      all_.push_back({ranges[r], coefficients_[r],
                      0.01f * static_cast<float>(r + 1),
                      0.1f * static_cast<float>(r % 3),
                      0.5f + 0.25f * static_cast<float>(r)});
    }
  }
  Updates(const Updates&) = delete;  // whose spans would be of the other one
  Updates& operator=(const Updates&) = delete;

  const std::vector<UpdateRange>& all() const { return all_; }
  // Every second one, from the first or the second on.
  std::vector<UpdateRange> Some(size_t first) const {
    std::vector<UpdateRange> some;
    for (size_t r = first; r < all_.size(); r += 2) some.push_back(all_[r]);
    return some;
  }

 private:
  std::vector<std::vector<double>> coefficients_;
  std::vector<UpdateRange> all_;
};

std::vector<ElementRange> SomeRanges(DType dtype = DType::kF32) {
  return LayOut({100, 33, 70, 1, 0, 1500, 7}, dtype);
}

std::vector<float> AnySeed(int64_t num_elements, std::mt19937* random) {
  std::normal_distribution<float> normal;
  std::vector<float> seed(num_elements);
  for (float& value : seed) value = normal(*random);
  return seed;
}

void ExpectSame(const UpdateRun& run, const UpdateRun& expected,
                DType narrowed) {
  EXPECT_EQ(run.all_finite(), expected.all_finite());
  const std::vector<std::vector<float>> arrays = run.ReadArrays();
  const std::vector<std::vector<float>> expected_arrays = expected.ReadArrays();
  ASSERT_EQ(arrays.size(), expected_arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i) {
    EXPECT_EQ(BitsOf(arrays[i]), BitsOf(expected_arrays[i])) << "array " << i;
  }
  EXPECT_EQ(BitsOf(run.Snapshot()), BitsOf(expected.Snapshot()));
  if (narrowed != DType::kF32) {
    EXPECT_EQ(run.NarrowedSnapshot(), expected.NarrowedSnapshot());
  }
}

TEST_P(BackendConformance, CombineIsTheWeightedSum) {
  OptimizerOptions none;
  none.kind = OptimizerKind::kNone;
  for (const DType dtype : kRowDTypes) {
    for (const int64_t num_rows : {1, 2, 4, 5, 9, 33}) {
      const TestRows rows = RandomRows(dtype, num_rows, 1000);
      std::normal_distribution<double> normal;
      std::vector<double> coefficients(num_rows);
      for (double& c : coefficients) c = normal(random_);
      UpdateRun run(backend_.get(), none, {{0, 1000}});
      ASSERT_TRUE(
          run.Combine(rows, run.MakeRanges(coefficients, RangeStep())).ok());
      ExpectCombined(rows, coefficients, run.Combined());
    }
  }
}

// For every formula, dtype of rows, narrowed dtype and several P: three steps,
// the first half of each in two calls with ranges in another order.
TEST_P(BackendConformance, CombineThenStepIsUpdate) {
  const struct {
    DType dtype, narrowed;
    int64_t num_rows;
  } cases[] = {{DType::kF32, DType::kF32, 1},
               {DType::kBF16, DType::kBF16, 3},
               {DType::kF16, DType::kF16, 5},
               {DType::kF32, DType::kBF16, 9},
               {DType::kI8, DType::kBF16, 5}};
  for (const auto& c : cases) {
    const std::vector<ElementRange> ranges = SomeRanges(c.dtype);
    const int64_t num_elements = LayoutElements(ranges);
    for (const OptimizerOptions& options : AllFormulas()) {
      SCOPED_TRACE(testing::Message()
                   << LineOf(options.kind).name << ", momentum "
                   << options.momentum << ", " << c.num_rows << " rows");
      const std::vector<float> seed = AnySeed(num_elements, &random_);
      UpdateRun whole(backend_.get(), options, ranges, c.narrowed);
      UpdateRun halves(backend_.get(), options, ranges, c.narrowed);
      whole.Load(seed);
      halves.Load(seed);
      for (int step = 0; step < 3; ++step) {
        const TestRows rows = RandomRows(c.dtype, c.num_rows, num_elements);
        const Updates updates(ranges, c.num_rows, &random_);
        ASSERT_TRUE(whole.Update(rows, updates.all()).ok());
        ASSERT_TRUE(halves.Combine(rows, updates.Some(1)).ok());
        ASSERT_TRUE(halves.Combine(rows, updates.Some(0)).ok());
        ASSERT_TRUE(halves.Step(updates.all()).ok());
        ExpectSame(halves, whole, c.narrowed);
      }
    }
  }
}

// Infinities, NaN and both zeros in every place of a vector and of its rest.
TEST_P(BackendConformance, CombineThenStepIsUpdateOfSpecialValues) {
  constexpr int64_t kNumElements = 1043;
  const std::vector<double> coefficients = {0.5, -2.0};
  const std::vector<ElementRange> ranges = {{0, kNumElements}};
  const float specials[] = {kInfinity,
                            -kInfinity,
                            std::nanf(""),
                            -0.0f,
                            0.0f,
                            std::numeric_limits<float>::denorm_min(),
                            std::numeric_limits<float>::max()};
  for (const OptimizerOptions& options : AllFormulas()) {
    SCOPED_TRACE(LineOf(options.kind).name);
    UpdateRun whole(backend_.get(), options, ranges, DType::kBF16);
    UpdateRun halves(backend_.get(), options, ranges, DType::kBF16);
    const std::vector<float> seed = AnySeed(kNumElements, &random_);
    whole.Load(seed);
    halves.Load(seed);
    for (const bool with_specials : {false, true, false}) {
      TestRows rows = RandomRows(DType::kF32, 2, kNumElements);
      for (int64_t k = 0; with_specials && k < kNumElements; k += 5) {
        rows.Set(k % 2, k, specials[k / 5 % std::size(specials)]);
      }
      rows.Land();
      const auto updates = whole.MakeRanges(coefficients, RangeStep());
      ASSERT_TRUE(whole.Update(rows, updates).ok());
      ASSERT_TRUE(halves.Combine(rows, updates).ok());
      ASSERT_TRUE(halves.Step(updates).ok());
      EXPECT_EQ(BitsOf(halves.Snapshot()), BitsOf(whole.Snapshot()));
      EXPECT_EQ(halves.all_finite(), whole.all_finite());
    }
  }
}

// Large requests may be shared among threads, cut into waves, and published by
// another kind of store.
TEST_P(BackendConformance, CombineThenStepIsUpdateOfALargeRange) {
  constexpr int64_t kNumElements = (int64_t{4} << 20) + 45;
  OptimizerOptions sgd;
  sgd.kind = OptimizerKind::kSgd;
  TestRows rows(backend_.get(), DType::kF32, 1, kNumElements);
  for (int64_t k = 0; k < kNumElements; ++k) {
    rows.Set(0, k, static_cast<float>(k % 1001) - 500.0f);
  }
  rows.Land();
  const std::vector<float> seed(kNumElements, 1.0f);
  UpdateRun whole(backend_.get(), sgd, {{0, kNumElements}});
  UpdateRun halves(backend_.get(), sgd, {{0, kNumElements}});
  whole.Load(seed);
  halves.Load(seed);
  const std::vector<double> coefficients = {0.3};
  const auto updates = whole.MakeRanges(coefficients, RangeStep());
  ASSERT_TRUE(whole.Update(rows, updates).ok());
  ASSERT_TRUE(halves.Combine(rows, updates).ok());
  ASSERT_TRUE(halves.Step(updates).ok());
  // Not EXPECT_EQ: megabytes of differences are no message.
  EXPECT_TRUE(halves.Snapshot() == whole.Snapshot());
  EXPECT_TRUE(halves.ReadArrays() == whole.ReadArrays());
}

TEST_P(BackendConformance, CombineTouchesNothingElse) {
  const std::vector<ElementRange> ranges = SomeRanges();
  const int64_t num_elements = LayoutElements(ranges);
  OptimizerOptions adam;
  adam.kind = OptimizerKind::kAdam;
  UpdateRun run(backend_.get(), adam, ranges, DType::kBF16);
  run.Load(AnySeed(num_elements, &random_));
  const TestRows rows = RandomRows(DType::kF32, 2, num_elements);
  const Updates updates(ranges, 2, &random_);
  const auto arrays = run.ReadArrays();
  const auto snapshot = run.Snapshot();
  const auto narrowed = run.NarrowedSnapshot();
  ASSERT_TRUE(run.Combine(rows, updates.Some(0)).ok());
  EXPECT_EQ(run.ReadArrays(), arrays);
  EXPECT_EQ(run.Snapshot(), snapshot);
  EXPECT_EQ(run.NarrowedSnapshot(), narrowed);
  const std::vector<float> combined = run.Combined();
  std::vector<bool> written(num_elements, false);
  for (const UpdateRange& update : updates.Some(0)) {
    for (int64_t k = 0; k < update.range.num_elements; ++k) {
      written[update.range.begin + k] = true;
    }
  }
  for (int64_t k = 0; k < num_elements; ++k) {
    EXPECT_EQ(combined[k] != UpdateRun::kUntouched, written[k]) << k;
  }
}

// As it lies there: a sum from zero would make +0 of -0.
TEST_P(BackendConformance, StepTakesTheCombinedGradientAsItIs) {
  OptimizerOptions none;
  none.kind = OptimizerKind::kNone;
  const std::vector<double> no_coefficients;
  for (const int64_t num_elements : {1, 7, 45}) {
    UpdateRun run(backend_.get(), none, {{0, num_elements}});
    run.Load(std::vector<float>(num_elements, 7.0f));
    const float values[] = {-0.0f, 0.0f, 1e-45f, -1e-45f, 3.5f, kInfinity};
    for (int64_t k = 0; k < num_elements; ++k)
      run.combined()[k] = values[k % 6];
    const std::vector<float> combined = run.Combined();
    ASSERT_TRUE(run.Step(run.MakeRanges(no_coefficients, RangeStep())).ok());
    EXPECT_EQ(BitsOf(run.Snapshot()), BitsOf(combined));
    EXPECT_EQ(BitsOf(run.Combined()), BitsOf(combined));
  }
}

// A replica's: nobody pulls from it.
TEST_P(BackendConformance, StepWithoutASnapshotLeavesTheSameArrays) {
  const std::vector<ElementRange> ranges = SomeRanges();
  const int64_t num_elements = LayoutElements(ranges);
  for (const OptimizerOptions& options : AllFormulas()) {
    SCOPED_TRACE(LineOf(options.kind).name);
    const std::vector<float> seed = AnySeed(num_elements, &random_);
    UpdateRun home(backend_.get(), options, ranges);
    UpdateRun replica(backend_.get(), options, ranges);
    home.Load(seed);
    replica.Load(seed);
    for (const float last : {1.0f, kInfinity}) {
      TestRows rows = RandomRows(DType::kF32, 2, num_elements);
      rows.Set(1, num_elements - 1, last);
      rows.Land();
      const Updates updates(ranges, 2, &random_);
      ASSERT_TRUE(home.Combine(rows, updates.all()).ok());
      ASSERT_TRUE(home.Step(updates.all()).ok());
      std::copy_n(home.combined(), num_elements, replica.combined());
      const std::vector<float> untouched = replica.Snapshot();
      ASSERT_TRUE(replica
                      .Step(updates.all(),
                            [](UpdateRequest* r) { r->snapshot = nullptr; })
                      .ok());
      EXPECT_EQ(replica.Snapshot(), untouched);
      EXPECT_EQ(replica.all_finite(), home.all_finite());
      const auto arrays = replica.ReadArrays();
      const auto expected = home.ReadArrays();
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(BitsOf(arrays[i]), BitsOf(expected[i])) << "array " << i;
      }
    }
  }
}

// What Combine and Step need of a request, and what they do not.
TEST_P(BackendConformance, HalvesRefuseWhatDoesNotFitThem) {
  OptimizerOptions adam;
  adam.kind = OptimizerKind::kAdam;
  const TestRows rows = RandomRows(DType::kF32, 2, 64);
  UpdateRun run(backend_.get(), adam, {{0, 64}}, DType::kBF16);
  run.Load(std::vector<float>(64, 1.0f));
  const auto small = Allocate(BufferUse::kSnapshot, 63 * 4);
  const auto state = Allocate(BufferUse::kState, 64 * 4);
  const std::vector<double> coefficients = {1.0, 1.0};
  const std::vector<double> too_few = {1.0};
  const auto updates = run.MakeRanges(coefficients, RangeStep());
  const auto few = run.MakeRanges(too_few, RangeStep());
  const auto combines = [&](const std::vector<UpdateRange>& ranges,
                            const UpdateRun::Change& change) {
    const absl::Status status = run.Combine(rows, ranges, change);
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    return status.ok();
  };
  EXPECT_TRUE(combines(updates, [](UpdateRequest* r) {
    r->step = 0;
    r->master = r->state0 = r->snapshot = r->narrowed_snapshot = nullptr;
  }));
  EXPECT_FALSE(combines(few, {}));
  EXPECT_FALSE(combines(updates, [](UpdateRequest* r) { r->rows = {}; }));
  EXPECT_FALSE(
      combines(updates, [](UpdateRequest* r) { r->combined = nullptr; }));
  EXPECT_FALSE(
      combines(updates, [&](UpdateRequest* r) { r->combined = small.get(); }));
  // A device's state has no address on the host.
  EXPECT_EQ(
      combines(updates, [&](UpdateRequest* r) { r->combined = state.get(); }),
      state->host() != nullptr);
  const auto steps = [&](const UpdateRun::Change& change) {
    const absl::Status status = run.Step(updates, change);
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    return status.ok();
  };
  EXPECT_TRUE(steps({}));
  EXPECT_TRUE(steps(
      [](UpdateRequest* r) { r->snapshot = r->narrowed_snapshot = nullptr; }));
  EXPECT_FALSE(steps([](UpdateRequest* r) { r->snapshot = nullptr; }));
  EXPECT_FALSE(steps([](UpdateRequest* r) { r->combined = nullptr; }));
  EXPECT_FALSE(steps([&](UpdateRequest* r) { r->combined = small.get(); }));
  EXPECT_FALSE(steps([](UpdateRequest* r) { r->state1 = nullptr; }));
  EXPECT_FALSE(steps([](UpdateRequest* r) { r->step = 0; }));
}

}  // namespace
}  // namespace agg
