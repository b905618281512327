// The conformance suite on the CUDA backend as it is built, host code of nvcc's
// included; its kernels run as the PTX that nvcc has made of them.
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/gram_kernel.h"
#include "tests/conformance/backend_conformance.h"
#include "tests/kernels/cuda/emulator/device.h"
#include "tests/kernels/cuda/ptx/runtime.h"

namespace agg {
namespace {

BackendUnderTest Interpreted(const std::string& name, int target,
                             GramArithmetic gram) {
  BackendUnderTest backend;
  backend.name = name;
  backend.make = [target, gram] {
    ptx::SetTarget(target);
    emulator::SetLazy(true);
    CudaOptions options;
    options.use_cublas = false;
    options.gram = gram;
    auto made = CudaBackend::Make(options);
    return made.ok() ? *std::move(made) : nullptr;
  };
  if (gram == GramArithmetic::kDoubleFloat) {
    backend.gram_slack = {cuda::kDoubleFloatUnit, 0x1p-150};
  }
  return backend;
}

INSTANTIATE_TEST_SUITE_P(
    Interpreted, BackendConformance,
    testing::Values(Interpreted("Sm80", 80, GramArithmetic::kDouble),
                    Interpreted("Sm90", 90, GramArithmetic::kDouble),
                    Interpreted("DoubleFloat", 90,
                                GramArithmetic::kDoubleFloat)),
    BackendUnderTest::Name);

}  // namespace
}  // namespace agg
