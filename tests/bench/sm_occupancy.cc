#include "tests/bench/sm_occupancy.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <optional>

#include "nlohmann/json.hpp"

namespace agg {
namespace {

constexpr int kLanes = 32;
constexpr int kParts = 4;
constexpr int kRegisterUnit = 256;
constexpr int kSharedUnit = 128;

constexpr int RoundUp(int value, int unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

std::optional<SmLimits> LimitsOfDevice() {
  SmLimits limits;
  int device = 0;
  bool known = cudaGetDevice(&device) == cudaSuccess;
  const auto ask = [&](cudaDeviceAttr attribute, int* value) {
    known = known &&
            cudaDeviceGetAttribute(value, attribute, device) == cudaSuccess;
  };
  ask(cudaDevAttrMaxThreadsPerMultiProcessor, &limits.threads);
  ask(cudaDevAttrMaxBlocksPerMultiprocessor, &limits.blocks);
  ask(cudaDevAttrMaxRegistersPerMultiprocessor, &limits.registers);
  ask(cudaDevAttrMaxSharedMemoryPerMultiprocessor, &limits.shared_bytes);
  ask(cudaDevAttrReservedSharedMemoryPerBlock, &limits.block_shared_bytes);
  if (known) return limits;
  cudaGetLastError();
  return std::nullopt;
}

int ExpectedBlocks(const cuda::KernelUse& use, const SmLimits& limits) {
  const int warps = RoundUp(use.threads, kLanes) / kLanes;
  const int warp_registers =
      std::max(kRegisterUnit, RoundUp(use.registers * kLanes, kRegisterUnit));
  const int shared = std::max(
      1, RoundUp(use.shared_bytes + limits.block_shared_bytes, kSharedUnit));
  return std::min({limits.blocks, limits.threads / kLanes / warps,
                   limits.registers / kParts / warp_registers * kParts / warps,
                   limits.shared_bytes / shared});
}

Json BlocksPerSm(const cuda::KernelUse& use,
                 const std::optional<SmLimits>& limits) {
  Json expected;
  if (limits.has_value()) expected = ExpectedBlocks(use, *limits);
  return {{"driver", use.blocks_per_sm}, {"expected", expected}};
}

}  // namespace agg
