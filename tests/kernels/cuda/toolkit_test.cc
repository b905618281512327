// Says, where tests are counted, that nothing of CUDA was built.
#include <string>

#include "gtest/gtest.h"

namespace agg {
namespace {

TEST(ToolkitTest, CompiledTheCudaBackend) {
  const std::string release = AGG_CUDA_RELEASE;
  if (release.empty()) {
    GTEST_SKIP() << "no CUDA toolkit: the CUDA backend was not compiled";
  }
  EXPECT_GE(std::stoi(release), 12) << "kernels are written for CUDA 12 on";
}

}  // namespace
}  // namespace agg
