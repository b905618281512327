#include "tests/bench/device_limits.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/numa_node.h"
#include "nlohmann/json.hpp"
#include "tests/bench/cuda_must.h"
#include "tests/bench/fp64_peak.h"
#include "tests/bench/turn_rates.h"

namespace agg {
namespace {

// By "amount / seconds" of each turn.
std::vector<double> RatesOfKernel(const std::vector<Turn>& turns,
                                  double amount) {
  std::vector<double> rates;
  for (const Turn& turn : turns) rates.push_back(amount / turn.kernel);
  return rates;
}

double MeasureCopy(CopyTurns* turns, BenchFile* file) {
  std::vector<double> rates;
  for (const Turn& turn : turns->Measure([] {})) {
    rates.push_back(turns->copied_bytes() / turn.copy * 1e-9);
  }
  const Json spread = SpreadOf(rates);
  file->Set("copy", {{"bytes", ExactNumber(turns->copied_bytes())},
                     {"repetitions", rates.size()},
                     {"gb_per_s", spread}});
  const double median = spread["median"];
  std::printf("device copy, read + written  %8.1f GB/s\n", median);
  return median * 1e9;
}

double MeasureFp64(bool smoke, CopyTurns* turns, BenchFile* file) {
  const int num_blocks = smoke ? 2 : 4096;
  const int num_rounds = smoke ? 2 : 2000;
  Json rates;
  double largest = 0.0;
  for (const bool tall : {false, true}) {
    const auto measured = turns->Measure([&] {
      Must(LaunchFp64Peak(tall, num_blocks, num_rounds,
                          reinterpret_cast<double*>(turns->to()),
                          turns->stream()));
    });
    const Json spread = SpreadOf(RatesOfKernel(
        measured, Fp64PeakOperations(num_blocks, num_rounds) * 1e-12));
    rates[tall ? "m16n8k4_tflop_per_s" : "m8n8k4_tflop_per_s"] = spread;
    const double median = spread["median"];
    std::printf("fp64 mma from registers, %s %6.2f TFLOP/s\n",
                tall ? "m16n8k4" : " m8n8k4", median);
    largest = std::max(largest, median * 1e12);
  }
  file->Set("fp64", rates);
  return largest;
}

void MeasureBus(CopyTurns* turns, BenchFile* file) {
  const int64_t num_bytes = turns->num_bytes();
  const auto host = Must(cuda::AllocatePinned(num_bytes, cuda::NumaNode()));
  Json rates;
  for (const bool up : {true, false}) {
    const auto measured = turns->Measure([&] {
      Must(up ? cuda::CopyToDevice(host.get(), turns->to(), {0, num_bytes},
                                   turns->stream())
              : cuda::CopyToHost(turns->to(), host.get(), {0, num_bytes},
                                 turns->stream()));
    });
    const Json spread = SpreadOf(
        RatesOfKernel(measured, static_cast<double>(num_bytes) * 1e-9));
    rates[up ? "host_to_device_gb_per_s" : "device_to_host_gb_per_s"] = spread;
    std::printf("%s %22.1f GB/s\n", up ? "host to device" : "device to host",
                spread["median"].get<double>());
  }
  file->Set("bus", rates);
}

}  // namespace

DeviceLimits MeasureLimits(bool smoke, CopyTurns* turns, BenchFile* file) {
  DeviceLimits limits;
  limits.copy_bytes_per_second = MeasureCopy(turns, file);
  limits.fp64_per_second = MeasureFp64(smoke, turns, file);
  MeasureBus(turns, file);
  return limits;
}

}  // namespace agg
