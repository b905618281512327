// How many kernels a round launches, as kernels/cuda/README.md states it.
// However many tensors: what would make each of them a launch of its own must
// not slip in.
#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/conformance/test_rows.h"
#include "tests/kernels/cuda/emulator/device.h"

namespace agg {
namespace {

constexpr int kNumRows = 4;
constexpr int64_t kTensorElements = 40;
constexpr int64_t kTensorLayout = 64;  // with padding

class LaunchCountTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    emulator::SetLazy(false);
    CudaOptions options;
    options.use_cublas = false;
    backend_ = *CudaBackend::Make(options);
    const int64_t num_elements = GetParam() * kTensorLayout;
    rows_ = std::make_unique<TestRows>(backend_.get(), DType::kF32, kNumRows,
                                       num_elements);
    for (int64_t r = 0; r < kNumRows; ++r) rows_->Set(r, 0, 1.0f);
    rows_->Land();
    master_ = *backend_->Allocate(BufferUse::kState, num_elements * 4);
    moment_ = *backend_->Allocate(BufferUse::kState, num_elements * 4);
    square_ = *backend_->Allocate(BufferUse::kState, num_elements * 4);
    snapshot_ = *backend_->Allocate(BufferUse::kSnapshot, num_elements * 4);
    narrowed_ = *backend_->Allocate(BufferUse::kSnapshot, num_elements * 2);
    optimizer_.kind = OptimizerKind::kLamb;
    ASSERT_TRUE(backend_
                    ->Load(optimizer_, *snapshot_, master_.get(), moment_.get(),
                           square_.get(), narrowed_.get(), DType::kBF16)
                    .ok());
    for (int64_t t = 0; t < GetParam(); ++t) {
      ranges_.push_back({t * kTensorLayout, kTensorElements});
      updates_.push_back({ranges_.back(), coefficients_, 0.1f, 0.0f, 1.0f});
    }
    Gram();  // which brings what has landed to the device
  }

  void Gram() {
    std::vector<double> hi(ranges_.size() * PackedGramSize(kNumRows));
    GramRequest request;
    request.rows = rows_->rows();
    request.ranges = ranges_;
    request.hi = absl::MakeSpan(hi);
    ASSERT_TRUE(backend_->Gram(request).ok());
  }

  UpdateRequest Request() {
    UpdateRequest request;
    request.rows = rows_->rows();
    request.optimizer = optimizer_;
    request.ranges = updates_;
    request.master = master_.get();
    request.state0 = moment_.get();
    request.state1 = square_.get();
    request.snapshot = snapshot_.get();
    return request;
  }

  template <class Work>
  static void ExpectLaunches(int64_t launches, const Work& work) {
    const emulator::Calls before = emulator::NumCalls();
    work();
    EXPECT_EQ(emulator::NumCalls().launches - before.launches, launches);
  }

  const std::vector<double> coefficients_ = {0.25, 0.25, 0.25, 0.25};
  OptimizerOptions optimizer_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<TestRows> rows_;
  std::unique_ptr<Buffer> master_, moment_, square_, snapshot_, narrowed_;
  std::vector<ElementRange> ranges_;
  std::vector<UpdateRange> updates_;
};

TEST_P(LaunchCountTest, OfAGram) {
  ExpectLaunches(2, [&] { Gram(); });
}

TEST_P(LaunchCountTest, OfARound) {
  ExpectLaunches(3, [&] {
    rows_->Land();
    Gram();
    ASSERT_TRUE(backend_->Update(Request()).ok());
  });
}

TEST_P(LaunchCountTest, OfAnUpdate) {
  ExpectLaunches(1, [&] { ASSERT_TRUE(backend_->Update(Request()).ok()); });
  UpdateRequest narrowing = Request();
  narrowing.narrowed_snapshot = narrowed_.get();
  narrowing.narrowed_dtype = DType::kBF16;
  ExpectLaunches(1, [&] { ASSERT_TRUE(backend_->Update(narrowing).ok()); });
  bool deferred = false;
  narrowing.snapshot_deferred = &deferred;
  ExpectLaunches(1, [&] { ASSERT_TRUE(backend_->Update(narrowing).ok()); });
  ASSERT_TRUE(deferred);
  ExpectLaunches(
      0, [&] { ASSERT_TRUE(backend_->FinishSnapshot(*snapshot_).ok()); });
  // What writes a master that is being copied waits for that.
  ASSERT_TRUE(backend_->Update(narrowing).ok());
  ExpectLaunches(1, [&] { ASSERT_TRUE(backend_->Update(Request()).ok()); });
  ASSERT_TRUE(backend_->FinishSnapshot(*snapshot_).ok());
  // As a shard asks: the kernel writes the flag where the host reads it.
  bool all_finite = false;
  UpdateRequest checked = Request();
  checked.all_finite = &all_finite;
  ExpectLaunches(1, [&] { ASSERT_TRUE(backend_->Update(checked).ok()); });
  EXPECT_TRUE(all_finite);
}

// The combined gradient is in memory that the device reads by itself.
TEST_P(LaunchCountTest, OfTheHalvesOfAnUpdate) {
  const auto combined =
      *backend_->Allocate(BufferUse::kSnapshot, snapshot_->num_bytes());
  UpdateRequest halves = Request();
  halves.combined = combined.get();
  ExpectLaunches(1, [&] { ASSERT_TRUE(backend_->Combine(halves).ok()); });
  ExpectLaunches(1, [&] { ASSERT_TRUE(backend_->Step(halves).ok()); });
  halves.snapshot = nullptr;
  ExpectLaunches(1, [&] { ASSERT_TRUE(backend_->Step(halves).ok()); });
}

TEST_P(LaunchCountTest, OfNorms) {
  std::vector<RangeNorms> norms(ranges_.size());
  ExpectLaunches(2, [&] {
    ASSERT_TRUE(backend_->Norms(Request(), absl::MakeSpan(norms)).ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Tensors, LaunchCountTest, testing::Values(1, 1000),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace agg
