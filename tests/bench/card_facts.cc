#include "tests/bench/card_facts.h"

#include <cuda_runtime_api.h>

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

}  // namespace agg
