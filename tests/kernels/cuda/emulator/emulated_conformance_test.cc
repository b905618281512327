// The conformance suite on the CUDA backend's own sources, on the emulated
// device: streams that run at once, and streams that run at the last moment.
// The Gram once more as a card with slow doubles computes it.
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/gram_kernel.h"
#include "tests/conformance/backend_conformance.h"
#include "tests/kernels/cuda/emulator/device.h"

namespace agg {
namespace {

BackendUnderTest Emulated(const std::string& name, bool lazy,
                          GramArithmetic gram) {
  BackendUnderTest backend;
  backend.name = name;
  backend.make = [lazy, gram] {
    emulator::SetLazy(lazy);
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
    Emulated, BackendConformance,
    testing::Values(Emulated("EagerStreams", false, GramArithmetic::kByDevice),
                    Emulated("LazyStreams", true, GramArithmetic::kByDevice),
                    Emulated("DoubleFloat", true,
                             GramArithmetic::kDoubleFloat)),
    BackendUnderTest::Name);

}  // namespace
}  // namespace agg
