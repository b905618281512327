#include "tests/bench/card_facts.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace agg {
namespace {

constexpr int kDevice = 0;

Json Attribute(cudaDeviceAttr attribute) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, attribute, kDevice) == cudaSuccess) {
    return value;
  }
  cudaGetLastError();
  return nullptr;
}

// 13000 is "13.0".
Json Version(cudaError_t (*get)(int*)) {
  int version = 0;
  if (get(&version) != cudaSuccess || version == 0) return nullptr;
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

constexpr int kLanes = 32;
constexpr int kParts = 4;
constexpr int kRegisterUnit = 256;
constexpr int kSharedUnit = 128;

constexpr int RoundUp(int value, int unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

Json CardFacts() {
  Json facts;
  cudaDeviceProp device;
  const bool known = cudaGetDeviceProperties(&device, kDevice) == cudaSuccess;
  facts["name"] = known ? Json(std::string(device.name)) : Json();
  facts["compute_capability"] =
      known ? Json(absl::StrCat(device.major, ".", device.minor)) : Json();
  facts["multiprocessors"] = Attribute(cudaDevAttrMultiProcessorCount);
  facts["memory_bytes"] = known ? Json(device.totalGlobalMem) : Json();
  facts["l2_bytes"] = Attribute(cudaDevAttrL2CacheSize);
  facts["ecc"] = Attribute(cudaDevAttrEccEnabled);
  facts["clock_khz"] = Attribute(cudaDevAttrClockRate);
  facts["memory_clock_khz"] = Attribute(cudaDevAttrMemoryClockRate);
  char bus_id[32] = "";
  facts["pci_bus_id"] =
      cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), kDevice) == cudaSuccess
          ? Json(std::string(bus_id))
          : Json();
  facts["cuda_runtime"] = Version(&cudaRuntimeGetVersion);
  facts["cuda_driver"] = Version(&cudaDriverGetVersion);
  return facts;
}

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
