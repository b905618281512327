#include "tests/conformance/update_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "tests/conformance/oracle.h"

namespace agg {
namespace {

std::unique_ptr<Buffer> MustAllocate(Backend* backend, BufferUse use,
                                     int64_t num_bytes) {
  auto buffer = backend->Allocate(use, num_bytes);
  EXPECT_TRUE(buffer.ok()) << buffer.status();
  return *std::move(buffer);
}

constexpr double kFloatUnit = 0x1p-24;  // half an ulp of float32

}  // namespace

UpdateRun::UpdateRun(Backend* backend, const OptimizerOptions& options,
                     std::vector<ElementRange> ranges, DType narrowed_dtype)
    : backend_(backend),
      options_(options),
      ranges_(std::move(ranges)),
      narrowed_dtype_(narrowed_dtype),
      num_elements_(LayoutElements(ranges_)) {
  const int64_t num_bytes = num_elements_ * 4;
  master_ = MustAllocate(backend, BufferUse::kState, num_bytes);
  const int num_arrays = OptimizerStateArrays(options);
  if (num_arrays > 0) {
    state0_ = MustAllocate(backend, BufferUse::kState, num_bytes);
  }
  if (num_arrays > 1) {
    state1_ = MustAllocate(backend, BufferUse::kState, num_bytes);
  }
  snapshot_ = MustAllocate(backend, BufferUse::kSnapshot, num_bytes);
  if (narrowed_dtype != DType::kF32) {
    narrowed_ = MustAllocate(backend, BufferUse::kSnapshot, num_elements_ * 2);
  }
  combined_ = MustAllocate(backend, BufferUse::kSnapshot, num_bytes);
  std::fill_n(combined(), num_elements_, kUntouched);
}

void UpdateRun::Load(const std::vector<float>& seed) {
  ASSERT_EQ(static_cast<int64_t>(seed.size()), num_elements_);
  std::copy(seed.begin(), seed.end(),
            reinterpret_cast<float*>(snapshot_->host()));
  const absl::Status status =
      backend_->Load(options_, *snapshot_, master_.get(), state0_.get(),
                     state1_.get(), narrowed_.get(), narrowed_dtype_);
  ASSERT_TRUE(status.ok()) << status;
  float* const snapshot = reinterpret_cast<float*>(snapshot_->host());
  std::fill(snapshot, snapshot + num_elements_, kUntouched);
  step_ = 1;
}

std::vector<std::vector<float>> UpdateRun::ReadArrays() const {
  std::vector<std::vector<float>> arrays;
  for (const Buffer* buffer : {master_.get(), state0_.get(), state1_.get()}) {
    if (buffer == nullptr) continue;
    arrays.emplace_back(num_elements_, kUntouched);
    const absl::Status status =
        backend_->Read(*buffer, absl::MakeSpan(arrays.back()));
    EXPECT_TRUE(status.ok()) << status;
  }
  return arrays;
}

void UpdateRun::Resume(const std::vector<std::vector<float>>& arrays,
                       int64_t num_steps) {
  size_t next = 0;
  for (Buffer* buffer : {master_.get(), state0_.get(), state1_.get()}) {
    if (buffer == nullptr) continue;
    ASSERT_LT(next, arrays.size());
    const absl::Status status = backend_->Write(arrays[next++], buffer);
    ASSERT_TRUE(status.ok()) << status;
  }
  step_ = num_steps + 1;
}

std::vector<UpdateRange> UpdateRun::MakeRanges(
    const std::vector<double>& coefficients, const RangeStep& step) const {
  std::vector<UpdateRange> updates;
  for (const ElementRange& range : ranges_) {
    UpdateRange update;
    update.range = range;
    update.coefficients = coefficients;
    update.learning_rate = step.learning_rate;
    update.weight_decay = step.weight_decay;
    update.trust = step.trust;
    updates.push_back(update);
  }
  return updates;
}

UpdateRequest UpdateRun::MakeRequest(
    const TestRows& rows, const std::vector<UpdateRange>& updates) const {
  UpdateRequest request = MakeStepRequest(updates);
  request.rows = rows.rows();
  request.dtype = rows.dtype();
  return request;
}

UpdateRequest UpdateRun::MakeStepRequest(
    const std::vector<UpdateRange>& updates) const {
  UpdateRequest request;
  request.optimizer = options_;
  request.step = step_;
  request.ranges = updates;
  request.master = master_.get();
  request.state0 = state0_.get();
  request.state1 = state1_.get();
  request.snapshot = snapshot_.get();
  request.narrowed_snapshot = narrowed_.get();
  request.narrowed_dtype = narrowed_dtype_;
  request.combined = combined_.get();
  return request;
}

absl::Status UpdateRun::Update(const TestRows& rows,
                               const std::vector<double>& coefficients,
                               const RangeStep& step, const Change& change) {
  return Update(rows, MakeRanges(coefficients, step), change);
}

absl::Status UpdateRun::Update(const TestRows& rows,
                               const std::vector<UpdateRange>& updates,
                               const Change& change) {
  UpdateRequest request = MakeRequest(rows, updates);
  request.all_finite = &all_finite_;
  if (change) change(&request);
  const absl::Status status = backend_->Update(request);
  if (status.ok()) ++step_;
  return status;
}

absl::Status UpdateRun::Combine(const TestRows& rows,
                                const std::vector<UpdateRange>& updates,
                                const Change& change) {
  UpdateRequest request = MakeRequest(rows, updates);
  if (change) change(&request);
  return backend_->Combine(request);
}

absl::Status UpdateRun::Step(const std::vector<UpdateRange>& updates,
                             const Change& change) {
  std::vector<UpdateRange> steps = updates;
  for (UpdateRange& step : steps) step.coefficients = {};
  UpdateRequest request = MakeStepRequest(steps);
  request.all_finite = &all_finite_;
  if (change) change(&request);
  const absl::Status status = backend_->Step(request);
  if (status.ok()) ++step_;
  return status;
}

std::vector<RangeNorms> UpdateRun::Norms(
    const TestRows& rows, const std::vector<double>& coefficients,
    const RangeStep& step) {
  const std::vector<UpdateRange> updates = MakeRanges(coefficients, step);
  std::vector<RangeNorms> norms(updates.size());
  const absl::Status status =
      backend_->Norms(MakeRequest(rows, updates), absl::MakeSpan(norms));
  EXPECT_TRUE(status.ok()) << status;
  return norms;
}

float* UpdateRun::combined() const {
  return reinterpret_cast<float*>(combined_->host());
}

std::vector<float> UpdateRun::Combined() const {
  return std::vector<float>(combined(), combined() + num_elements_);
}

std::vector<float> UpdateRun::Snapshot() const {
  const float* const begin = reinterpret_cast<const float*>(snapshot_->host());
  return std::vector<float>(begin, begin + num_elements_);
}

std::vector<uint16_t> UpdateRun::NarrowedSnapshot() const {
  const uint16_t* const begin =
      reinterpret_cast<const uint16_t*>(narrowed_->host());
  return std::vector<uint16_t>(begin, begin + num_elements_);
}

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

}  // namespace agg
