// A binary with CUDA in it, on a machine without a GPU or a driver.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"

namespace agg {
namespace {

TEST(NoDeviceTest, IsUnavailableWithAReason) {
  EXPECT_THAT(AvailableBackends(), testing::Contains("cuda"));
  const auto backend = MakeBackend("cuda", BackendOptions());
  if (backend.ok()) {
    GTEST_SKIP() << "there is a device: " << (*backend)->description();
  }
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(backend.status().message()),
              testing::StartsWith("no CUDA device: "));
  EXPECT_THAT(std::string(backend.status().message()),
              testing::ContainsRegex("[a-z]; this binary has CUDA [0-9.]+, "
                                     "which needs a driver .*; .+ here"));
}

}  // namespace
}  // namespace agg
