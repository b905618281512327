// What is said where the driver is too old for the binary's CUDA.
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/cuda/emulator/device.h"

namespace agg {
namespace {

using testing::HasSubstr;

const std::string kThis =
    absl::StrCat("this binary has CUDA ", CUDART_VERSION / 1000, ".",
                 CUDART_VERSION % 1000 / 10, ", which needs a driver ");

class EmulatedVersionsTest : public testing::Test {
 protected:
  ~EmulatedVersionsTest() override {
    emulator::SetDriverVersion(CUDART_VERSION);
    emulator::FailLoading(cudaSuccess);
    emulator::FailPreferring(cudaSuccess);
  }

  static absl::Status Make() {
    CudaOptions options;
    options.use_cublas = false;
    return CudaBackend::Make(options).status();
  }
};

TEST_F(EmulatedVersionsTest, AnOldDriverAndNone) {
  emulator::SetDriverVersion(11040);
  EXPECT_EQ(Make().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(Make().message()),
              testing::AllOf(testing::StartsWith("no CUDA device: "),
                             HasSubstr(kThis), HasSubstr("for CUDA 11.4")));
  emulator::SetDriverVersion(0);
  EXPECT_EQ(Make().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(Make().message()),
              testing::AllOf(HasSubstr(kThis), HasSubstr("no driver here")));
}

TEST_F(EmulatedVersionsTest, KernelsThatCannotBeLoaded) {
  emulator::FailLoading(cudaErrorUnsupportedPtxVersion);
  EXPECT_EQ(Make().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(Make().message()),
              testing::AllOf(HasSubstr("LoadGram"), HasSubstr(kThis)));
}

TEST_F(EmulatedVersionsTest, KernelsWithRingsAskForAllSharedMemory) {
  emulator::FailPreferring(cudaErrorInvalidValue);
  EXPECT_EQ(Make().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(emulator::NumPreferringShared(), 0);
  emulator::FailPreferring(cudaSuccess);
  EXPECT_EQ(Make(), absl::OkStatus());
  // Of 3 element types: up to 8 rows, three sizes of a panel, and its pairs. Of
  // these and int8: Update, Combine and Norms.
  EXPECT_EQ(emulator::NumPreferringShared(), 3 * (8 + 3 + 1) + 4 * 3);
}

TEST_F(EmulatedVersionsTest, TheLogHasBoth) {
  const auto backend = CudaBackend::Make(CudaOptions());
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_THAT((*backend)->description(), HasSubstr("with a driver for "));
}

}  // namespace
}  // namespace agg
