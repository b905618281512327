// The conformance suite on the CUDA backend's own sources, on the emulated
// device: streams that run at once, and streams that run at the last moment.
#include <utility>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/conformance/backend_conformance.h"
#include "tests/kernels/cuda/emulator/device.h"

namespace agg {
namespace {

BackendUnderTest Emulated(bool lazy) {
  return {lazy ? "LazyStreams" : "EagerStreams", [lazy] {
            emulator::SetLazy(lazy);
            CudaOptions options;
            options.use_cublas = false;
            auto backend = CudaBackend::Make(options);
            return backend.ok() ? *std::move(backend) : nullptr;
          }};
}

INSTANTIATE_TEST_SUITE_P(Emulated, BackendConformance,
                         testing::Values(Emulated(false), Emulated(true)),
                         BackendUnderTest::Name);

}  // namespace
}  // namespace agg
