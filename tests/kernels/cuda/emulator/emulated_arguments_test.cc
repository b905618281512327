// Arguments of kernels: in the launch's parameters or, of many tensors, in
// pinned memory. Neither may wait for the rows' copies, and no wave may find
// another one's.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/cuda/emulator/device.h"

namespace agg {
namespace {

constexpr int64_t kTensorElements = 32;
// In the parameters; in pinned memory, one wave; three waves.
constexpr int kNumTensors[] = {3, 1000, 2500};

class EmulatedArgumentsTest : public testing::TestWithParam<int> {
 protected:
  EmulatedArgumentsTest() {
    emulator::SetLazy(true);
    CudaOptions options;
    options.use_cublas = false;
    backend_ = *CudaBackend::Make(options);
    const int64_t num_elements = GetParam() * kTensorElements;
    row_ = *backend_->Allocate(BufferUse::kRow, num_elements * 4);
    master_ = *backend_->Allocate(BufferUse::kState, num_elements * 4);
    snapshot_ = *backend_->Allocate(BufferUse::kSnapshot, num_elements * 4);
    combined_ = *backend_->Allocate(BufferUse::kSnapshot, num_elements * 4);
    EXPECT_TRUE(backend_
                    ->Load(OptimizerOptions(), *snapshot_, master_.get(),
                           nullptr, nullptr, nullptr, DType::kF32)
                    .ok());
    // Each tensor has a coefficient of its own.
    for (int t = 0; t < GetParam(); ++t) coefficients_.push_back(t % 1024 + 1);
    for (int t = 0; t < GetParam(); ++t) {
      updates_.push_back({{t * kTensorElements, kTensorElements},
                          absl::MakeConstSpan(coefficients_).subspan(t, 1),
                          1.0f,
                          0.0f,
                          1.0f});
    }
  }

  void Land(float value) {
    auto* const values = reinterpret_cast<float*>(row_->host());
    const int64_t num_elements = row_->num_bytes() / 4;
    std::fill_n(values, num_elements, value);
    // Enough to be under way, and then some that is kept back.
    backend_->RowLanded(*row_, DType::kF32, {0, kTensorElements});
    backend_->RowLanded(*row_, DType::kF32,
                        {num_elements - kTensorElements, kTensorElements});
  }

  UpdateRequest Request() {
    UpdateRequest request;
    request.rows = rows_;
    request.ranges = updates_;
    request.master = master_.get();
    request.snapshot = snapshot_.get();
    request.combined = combined_.get();
    return request;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Buffer> row_, master_, snapshot_, combined_;
  std::vector<const Buffer*> rows_;
  std::vector<double> coefficients_;
  std::vector<UpdateRange> updates_;
};

TEST_P(EmulatedArgumentsTest, DoNotWaitForRowsThatLand) {
  Land(3.0f);
  ASSERT_TRUE(backend_->Step(Request()).ok());
  EXPECT_EQ(*reinterpret_cast<const float*>(row_->device()), 0.0f);
}

TEST_P(EmulatedArgumentsTest, AreThoseOfTheirOwnWave) {
  rows_ = {row_.get()};
  auto* const values = reinterpret_cast<float*>(row_->host());
  std::fill_n(values, row_->num_bytes() / 4, 1.0f);
  backend_->RowLanded(*row_, DType::kF32, {0, row_->num_bytes() / 4});
  const auto expect = [this](const Buffer& buffer, float factor) {
    for (int t = 0; t < GetParam(); ++t) {
      const auto* const floats = reinterpret_cast<const float*>(buffer.host());
      ASSERT_EQ(floats[t * kTensorElements], factor * coefficients_[t]) << t;
      ASSERT_EQ(floats[(t + 1) * kTensorElements - 1],
                factor * coefficients_[t])
          << t;
    }
  };
  ASSERT_TRUE(backend_->Combine(Request()).ok());
  expect(*combined_, 1.0f);
  ASSERT_TRUE(backend_->Update(Request()).ok());
  expect(*snapshot_, -1.0f);
  ASSERT_TRUE(backend_->Step(Request()).ok());
  expect(*snapshot_, -2.0f);
  std::vector<RangeNorms> norms(updates_.size());
  ASSERT_TRUE(backend_->Norms(Request(), absl::MakeSpan(norms)).ok());
  for (int t = 0; t < GetParam(); ++t) {
    const double parameter = 2.0 * coefficients_[t];
    ASSERT_EQ(norms[t].parameter_norm_squared,
              kTensorElements * parameter * parameter)
        << t;
  }
}

INSTANTIATE_TEST_SUITE_P(Tensors, EmulatedArgumentsTest,
                         testing::ValuesIn(kNumTensors),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace agg
