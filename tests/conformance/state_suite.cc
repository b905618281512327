// Read and Write: what a checkpoint takes out of a backend and puts back.
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/optimizer_step.h"
#include "kernels/optimizer_table.h"
#include "tests/conformance/backend_conformance.h"
#include "tests/conformance/update_run.h"

namespace agg {
namespace {

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_P(BackendConformance, ReadsWhatWasWrittenWithAllBits) {
  for (const int64_t num_elements : {1, 33, 70001}) {
    const auto state = Allocate(BufferUse::kState, num_elements * 4);
    ASSERT_NE(state, nullptr);
    std::vector<float> values(num_elements);
    for (float& value : values) {
      const auto bits = static_cast<uint32_t>(random_());
      std::memcpy(&value, &bits, sizeof(value));
    }
    values.back() = std::numeric_limits<float>::signaling_NaN();
    ASSERT_TRUE(backend_->Write(values, state.get()).ok());
    std::vector<float> read(num_elements, 1.0f);
    ASSERT_TRUE(backend_->Read(*state, absl::MakeSpan(read)).ok());
    EXPECT_TRUE(SameBits(read, values)) << num_elements;
  }
}

// For each optimizer: three steps; then two more here, and two more in fresh
// memory with the arrays that were read in between.
TEST_P(BackendConformance, AResumedOptimizerTakesTheSameSteps) {
  const std::vector<ElementRange> ranges = LayOut({100, 1, 4000});
  const int64_t num_elements = LayoutElements(ranges);
  const std::vector<double> coefficients = {0.5, -0.25};
  RangeStep step;
  step.learning_rate = 0.01f;
  step.weight_decay = 0.1f;
  for (const OptimizerLine& line : kOptimizers) {
    SCOPED_TRACE(line.name);
    OptimizerOptions options;
    options.kind = line.kind;
    options.momentum = line.Uses("momentum") ? 0.9f : 0.0f;
    std::vector<TestRows> rows;
    for (int i = 0; i < 5; ++i) {
      rows.push_back(RandomRows(DType::kF32, 2, num_elements));
    }
    UpdateRun run(backend_.get(), options, ranges);
    run.Load(std::vector<float>(num_elements, 0.5f));
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(run.Update(rows[i], coefficients, step).ok());
    }
    const std::vector<std::vector<float>> arrays = run.ReadArrays();
    UpdateRun resumed(backend_.get(), options, ranges);
    resumed.Load(std::vector<float>(num_elements, -3.0f));
    resumed.Resume(arrays, /*num_steps=*/3);
    for (int i = 3; i < 5; ++i) {
      ASSERT_TRUE(run.Update(rows[i], coefficients, step).ok());
      ASSERT_TRUE(resumed.Update(rows[i], coefficients, step).ok());
      EXPECT_TRUE(SameBits(resumed.Snapshot(), run.Snapshot())) << i;
    }
    const std::vector<std::vector<float>> end = run.ReadArrays();
    const std::vector<std::vector<float>> resumed_end = resumed.ReadArrays();
    ASSERT_EQ(end.size(), resumed_end.size());
    for (size_t i = 0; i < end.size(); ++i) {
      EXPECT_TRUE(SameBits(resumed_end[i], end[i])) << i;
    }
  }
}

TEST_P(BackendConformance, RefusesCopiesOfAnotherSize) {
  const auto state = Allocate(BufferUse::kState, 40);
  ASSERT_NE(state, nullptr);
  std::vector<float> values(11, 0.0f);
  EXPECT_TRUE(
      absl::IsInvalidArgument(backend_->Read(*state, absl::MakeSpan(values))));
  EXPECT_TRUE(absl::IsInvalidArgument(backend_->Write(values, state.get())));
  values.resize(9);
  EXPECT_TRUE(
      absl::IsInvalidArgument(backend_->Read(*state, absl::MakeSpan(values))));
  EXPECT_TRUE(absl::IsInvalidArgument(backend_->Write(values, nullptr)));
}

}  // namespace
}  // namespace agg
