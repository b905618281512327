// What Combine and Step need of a request, and what they do not.
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/dtype.h"
#include "kernels/optimizer_step.h"
#include "tests/conformance/backend_conformance.h"
#include "tests/conformance/update_run.h"

namespace agg {
namespace {

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
