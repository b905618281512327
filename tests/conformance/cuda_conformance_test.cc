#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/gram_kernel.h"
#include "tests/conformance/backend_conformance.h"

namespace agg {
namespace {

// "" where there is a device; asked once.
std::string WhyNoDevice() {
  static const std::string* const reason = [] {
    const auto backend = CudaBackend::Make(CudaOptions());
    return new std::string(backend.ok() ? "" : backend.status().message());
  }();
  return *reason;
}

BackendUnderTest Cuda(const std::string& name, GramArithmetic gram,
                      bool use_cublas) {
  BackendUnderTest backend;
  backend.name = name;
  backend.make = [gram, use_cublas]() -> std::unique_ptr<Backend> {
    CudaOptions options;
    options.gram = gram;
    options.use_cublas = use_cublas;
    options.many_rows = 4;  // so that the suite's large ranges have more
    auto made = CudaBackend::Make(options);
    return made.ok() ? *std::move(made) : nullptr;
  };
  backend.why_not = &WhyNoDevice;
  return backend;
}

BackendUnderTest DoubleFloat() {
  BackendUnderTest backend =
      Cuda("DoubleFloat", GramArithmetic::kDoubleFloat, false);
  backend.gram_slack = {cuda::kDoubleFloatUnit, 0x1p-150};
  return backend;
}

INSTANTIATE_TEST_SUITE_P(
    Cuda, BackendConformance,
    testing::Values(Cuda("HandKernels", GramArithmetic::kDouble, false),
                    Cuda("CublasIfThere", GramArithmetic::kDouble, true),
                    DoubleFloat()),
    BackendUnderTest::Name);

}  // namespace
}  // namespace agg
