// Linked to the tests of the kernels: that they have run every one.
#include "gtest/gtest.h"
#include "tests/kernels/cuda/ptx/runtime.h"

namespace agg::ptx {
namespace {

class EveryKernelRuns : public testing::Environment {
 public:
  void TearDown() override {
    if (testing::GTEST_FLAG(filter) != "*") return;
    EXPECT_FALSE(RegisteredKernels().empty());
    EXPECT_EQ(KernelsThatRan(80), RegisteredKernels());
    EXPECT_EQ(KernelsThatRan(90), RegisteredKernels());
  }
};

[[maybe_unused]] const testing::Environment* const every_kernel_runs =
    testing::AddGlobalTestEnvironment(new EveryKernelRuns);

}  // namespace
}  // namespace agg::ptx
