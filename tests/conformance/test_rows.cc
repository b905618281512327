#include "tests/conformance/test_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/row_format.h"
#include "tests/conformance/oracle.h"

namespace agg {

TestRows::TestRows(Backend* backend, DType dtype, int64_t num_rows,
                   int64_t layout_elements)
    : backend_(backend), dtype_(dtype) {
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t alignment = LayoutAlignment(dtype);
    auto buffer = backend->Allocate(
        BufferUse::kRow, RowBytes(dtype, (layout_elements + alignment - 1) /
                                             alignment * alignment));
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    buffers_.push_back(*std::move(buffer));
    pointers_.push_back(buffers_.back().get());
    values_.emplace_back(layout_elements, 0.0);
  }
}

void TestRows::Set(int64_t row, int64_t element, float value) {
  char* const at = buffers_[row]->host() + element * DTypeBytes(dtype_);
  if (dtype_ == DType::kF32) {
    std::memcpy(at, &value, sizeof(value));
    values_[row][element] = value;
    return;
  }
  if (dtype_ == DType::kI8) {
    values_[row][element] = value;
    return;
  }
  const uint16_t bits = oracle::Narrow(dtype_, value);
  std::memcpy(at, &bits, sizeof(bits));
  values_[row][element] = oracle::Widen(dtype_, bits);
}

// By the definition (proto/README.md): the largest magnitude is 127 steps, and
// one that is not finite makes the scale NaN.
void TestRows::Quantise(int64_t row, int64_t begin) {
  std::vector<double>& values = values_[row];
  const int64_t end = std::min<int64_t>(begin + kScaleBlockElements,
                                        static_cast<int64_t>(values.size()));
  double largest = 0.0;
  bool finite = true;
  for (int64_t k = begin; k < end; ++k) {
    finite = finite && std::isfinite(values[k]);
    largest = std::max(largest, std::fabs(values[k]));
  }
  float scale = static_cast<float>(largest / 127);
  if (!finite) scale = std::nanf("");
  Buffer* const buffer = buffers_[row].get();
  std::memcpy(buffer->host() + ScaleOffset(buffer->num_bytes(), begin), &scale,
              sizeof(scale));
  for (int64_t k = begin; k < end; ++k) {
    const double steps = std::nearbyint(values[k] / scale);
    const auto q = static_cast<int8_t>(
        std::isfinite(steps) ? std::clamp(steps, -127.0, 127.0) : 0.0);
    buffer->host()[k] = static_cast<char>(q);
    values[k] = static_cast<double>(scale) * q;
  }
}

void TestRows::Land() {
  for (size_t row = 0; row < buffers_.size(); ++row) {
    const auto num_elements = static_cast<int64_t>(values_[row].size());
    for (int64_t begin = 0; dtype_ == DType::kI8 && begin < num_elements;
         begin += kScaleBlockElements) {
      Quantise(static_cast<int64_t>(row), begin);
    }
    const ElementRange all{0, static_cast<int64_t>(values_[row].size())};
    backend_->RowLanded(*buffers_[row], dtype_, all);
  }
}

std::vector<double> TestRows::values(int64_t row,
                                     const ElementRange& range) const {
  const auto begin = values_[row].begin() + range.begin;
  return std::vector<double>(begin, begin + range.num_elements);
}

}  // namespace agg
