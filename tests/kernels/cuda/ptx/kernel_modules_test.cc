#include "tests/kernels/cuda/ptx/kernel_modules.h"

#include <cstdlib>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace agg::ptx {
namespace {

TEST(KernelModulesTest, NamesHaveNoHashes) {
  EXPECT_EQ(WithoutHashes("_ZN3agg45_GLOBAL__N__7194d4d9_9_a_cu_4a092ff41KEv"),
            "_ZN3agg45_GLOBAL__N__00000000_9_a_cu_000000001KEv");
  EXPECT_EQ(WithoutHashes("_Z1Kil"), "_Z1Kil");
}

TEST(KernelModulesTest, MissesFilesThatAreNotThere) {
  setenv("AGG_PTX", "nowhere.ptx", 1);
  EXPECT_EQ(FindKernel(90, "K").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace agg::ptx
