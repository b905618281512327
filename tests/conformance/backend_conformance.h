// One test suite for every compute backend: the promises of kernels/backend.h.
//
// A backend's test links :backend_conformance (whose sources hold the TEST_Ps)
// and instantiates it:
//   INSTANTIATE_TEST_SUITE_P(Cpu, BackendConformance,
//                            testing::Values(BackendUnderTest{..}),
//                            BackendUnderTest::Name);
// State is observed through snapshots, as on a device, but where Read is
// tested.
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
#include "tests/conformance/test_rows.h"

namespace agg {

// What a plain Gram may be off by besides n * 2^-53 * sum |a_k b_k|, the bound
// of sums in double, which is all that a backend has unless it documents more.
struct GramSlack {
  double relative = 0.0;     // to sum |a_k b_k|
  double per_element = 0.0;  // absolute
};

struct BackendUnderTest {
  // Instead of the bytes of the function object.
  friend void PrintTo(const BackendUnderTest& backend, std::ostream* os) {
    *os << backend.name;
  }

  std::string name;
  std::function<std::unique_ptr<Backend>()> make;
  // Why there is nothing to test on this machine; empty or null: there is.
  std::function<std::string()> why_not = nullptr;
  GramSlack gram_slack = {};
  static std::string Name(const testing::TestParamInfo<BackendUnderTest>& p) {
    return p.param.name;
  }
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

// All dtypes of rows.
inline constexpr DType kRowDTypes[] = {DType::kF32, DType::kBF16, DType::kF16,
                                       DType::kI8};

// Slices one behind the other, each at a multiple of LayoutAlignment(dtype).
std::vector<ElementRange> LayOut(const std::vector<int64_t>& num_elements,
                                 DType dtype = DType::kF32);
int64_t LayoutElements(const std::vector<ElementRange>& ranges);

}  // namespace agg

#endif  // AGG_TESTS_CONFORMANCE_BACKEND_CONFORMANCE_H_
