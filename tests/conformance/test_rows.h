// Rows of gradients for tests of a backend.
#ifndef AGG_TESTS_CONFORMANCE_TEST_ROWS_H_
#define AGG_TESTS_CONFORMANCE_TEST_ROWS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/dtype.h"

namespace agg {

// Rows in a backend's buffers and, beside them, their values in double. Those
// of int8 rows are there after Land, which chooses their scales.
class TestRows {
 public:
  // Zeros. `backend` outlives the rows.
  TestRows(Backend* backend, DType dtype, int64_t num_rows,
           int64_t layout_elements);

  // Stores the nearest value of the dtype.
  void Set(int64_t row, int64_t element, float value);
  // Lands all rows (RowLanded). Call after the last Set.
  void Land();
  // The bytes of a row, for tests that write them.
  char* host(int64_t row) const { return buffers_[row]->host(); }

  absl::Span<const Buffer* const> rows() const { return pointers_; }
  DType dtype() const { return dtype_; }
  int64_t num_rows() const { return static_cast<int64_t>(values_.size()); }
  // All of a row, or a range of it.
  const std::vector<double>& values(int64_t row) const { return values_[row]; }
  std::vector<double> values(int64_t row, const ElementRange& range) const;

 private:
  // Rounds a block of an int8 row's values, and writes its scale and elements.
  void Quantise(int64_t row, int64_t begin);

  Backend* backend_;
  DType dtype_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<const Buffer*> pointers_;
  std::vector<std::vector<double>> values_;
};

}  // namespace agg

#endif  // AGG_TESTS_CONFORMANCE_TEST_ROWS_H_
