#include "tests/conformance/test_rows.h"

#include <cstring>
#include <utility>

#include "gtest/gtest.h"
#include "tests/conformance/oracle.h"

namespace agg {

TestRows::TestRows(Backend* backend, DType dtype, int64_t num_rows,
                   int64_t layout_elements)
    : backend_(backend), dtype_(dtype) {
  for (int64_t row = 0; row < num_rows; ++row) {
    auto buffer =
        backend->Allocate(BufferUse::kRow, layout_elements * DTypeBytes(dtype));
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
  const uint16_t bits = oracle::Narrow(dtype_, value);
  std::memcpy(at, &bits, sizeof(bits));
  values_[row][element] = oracle::Widen(dtype_, bits);
}

void TestRows::Land() {
  for (size_t row = 0; row < buffers_.size(); ++row) {
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
