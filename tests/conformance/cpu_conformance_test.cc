#include <utility>

#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "tests/conformance/backend_conformance.h"

namespace agg {
namespace {

BackendUnderTest CpuWith(int num_threads) {
  return {"Threads" + std::to_string(num_threads), [num_threads] {
            BackendOptions options;
            options.num_threads = num_threads;
            auto backend = MakeBackend("cpu", options);
            return backend.ok() ? *std::move(backend) : nullptr;
          }};
}

INSTANTIATE_TEST_SUITE_P(Cpu, BackendConformance,
                         testing::Values(CpuWith(1), CpuWith(2), CpuWith(5)),
                         BackendUnderTest::Name);

}  // namespace
}  // namespace agg
