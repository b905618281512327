// One test suite for every compute backend: the promises of kernels/backend.h.
//
// A backend's test links :backend_conformance (whose sources hold the TEST_Ps)
// and instantiates it:
//   INSTANTIATE_TEST_SUITE_P(Cpu, BackendConformance,
//                            testing::Values(BackendUnderTest{..}),
//                            BackendUnderTest::Name);
// State is only ever observed through snapshots, as on a device.
#ifndef AGG_TESTS_CONFORMANCE_BACKEND_CONFORMANCE_H_
#define AGG_TESTS_CONFORMANCE_BACKEND_CONFORMANCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/dtype.h"

namespace agg {

struct BackendUnderTest {
  // Instead of the bytes of the function object.
  friend void PrintTo(const BackendUnderTest& backend, std::ostream* os) {
    *os << backend.name;
  }

  std::string name;
  std::function<std::unique_ptr<Backend>()> make;
  // Why there is nothing to test on this machine; empty or null: there is.
  std::function<std::string()> why_not = nullptr;
  static std::string Name(const testing::TestParamInfo<BackendUnderTest>& p) {
    return p.param.name;
  }
};

// Rows in a backend's buffers and, beside them, their values in double.
class TestRows {
 public:
  TestRows(Backend* backend, DType dtype, int64_t num_rows,
           int64_t layout_elements);

  // Stores the nearest value of the dtype.
  void Set(int64_t row, int64_t element, float value);
  // Lands all rows (RowLanded). Call after the last Set.
  void Land();

  absl::Span<const Buffer* const> rows() const { return pointers_; }
  DType dtype() const { return dtype_; }
  int64_t num_rows() const { return static_cast<int64_t>(values_.size()); }
  // All of a row, or a range of it.
  const std::vector<double>& values(int64_t row) const { return values_[row]; }
  std::vector<double> values(int64_t row, const ElementRange& range) const;

 private:
  Backend* backend_;
  DType dtype_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<const Buffer*> pointers_;
  std::vector<std::vector<double>> values_;
};

class BackendConformance : public testing::TestWithParam<BackendUnderTest> {
 protected:
  void SetUp() override {
    if (GetParam().why_not != nullptr) {
      const std::string reason = GetParam().why_not();
      if (!reason.empty()) GTEST_SKIP() << reason;
    }
    backend_ = GetParam().make();
    ASSERT_NE(backend_, nullptr);
  }

  std::unique_ptr<Buffer> Allocate(BufferUse use, int64_t num_bytes) {
    auto buffer = backend_->Allocate(use, num_bytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return buffer.ok() ? *std::move(buffer) : nullptr;
  }

  // Rows of N(0, scale), landed.
  TestRows RandomRows(DType dtype, int64_t num_rows, int64_t num_elements,
                      float scale = 1.0f);

  std::mt19937 random_{20261120};
  std::unique_ptr<Backend> backend_;
};

// Slices one behind the other, each at a multiple of kLayoutAlignment.
std::vector<ElementRange> LayOut(const std::vector<int64_t>& num_elements);
int64_t LayoutElements(const std::vector<ElementRange>& ranges);

}  // namespace agg

#endif  // AGG_TESTS_CONFORMANCE_BACKEND_CONFORMANCE_H_
