#include "tests/conformance/backend_conformance.h"

#include <algorithm>

#include "kernels/row_format.h"

namespace agg {

TestRows BackendConformance::RandomRows(DType dtype, int64_t num_rows,
                                        int64_t num_elements, float scale) {
  TestRows rows(backend_.get(), dtype, num_rows, num_elements);
  std::normal_distribution<float> normal(0.0f, scale);
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t k = 0; k < num_elements; ++k) {
      rows.Set(row, k, normal(random_));
    }
  }
  rows.Land();
  return rows;
}

std::vector<ElementRange> LayOut(const std::vector<int64_t>& num_elements,
                                 DType dtype) {
  const int64_t alignment = LayoutAlignment(dtype);
  std::vector<ElementRange> ranges;
  int64_t begin = 0;
  for (const int64_t n : num_elements) {
    ranges.push_back({begin, n});
    begin += (n + alignment - 1) / alignment * alignment;
  }
  return ranges;
}

int64_t LayoutElements(const std::vector<ElementRange>& ranges) {
  int64_t end = 0;
  for (const ElementRange& range : ranges) {
    end = std::max(end, range.begin + range.num_elements);
  }
  return end;
}

}  // namespace agg
