// What a benchmark of rounds on a card needs besides the rounds: tensors there,
// copies to compare with, and where the time went.
#ifndef AGG_TESTS_BENCH_ROUND_PARTS_H_
#define AGG_TESTS_BENCH_ROUND_PARTS_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/device_memory/device_context.h"
#include "kernels/device_memory/shared_device_memory.h"
#include "nlohmann/json.hpp"
#include "proto/shard_plan.h"
#include "server/base/json.h"
#include "tests/bench/device_fill.h"
#include "worker_client/tensor_view.h"

namespace agg {

// Of the wall clock.
double Seconds(const std::function<void()>& run);

// Of one worker: memory of the card, as a framework would have it.
class DeviceTensors {
 public:
  DeviceTensors(std::shared_ptr<const DeviceContext> context,
                const Manifest& manifest, uint32_t seed, DeviceFill* fill);

  std::vector<TensorView> views() const;
  std::vector<MutableTensorView> targets() const;

 private:
  static absl::Span<float> Floats(const SharedDeviceMemory& memory);

  std::vector<std::unique_ptr<SharedDeviceMemory>> memory_;
};

// How fast the card copies its own memory, bytes read and written per second.
class CardCopy {
 public:
  CardCopy(int64_t num_bytes, cudaStream_t stream);
  double Measure();

 private:
  const int64_t num_bytes_;
  const cudaStream_t stream_;
  const cuda::DeviceMemory from_, to_;
};

// Seconds by name.
using Parts = std::map<std::string, double>;

// What a job's server says of its rounds.
class ServerPhases {
 public:
  explicit ServerPhases(int metrics_port);

  // Those of the round that has just ended; the server tells them soon after.
  // But for the wait for workers, in which a benchmark does other things.
  // Empty if it does not tell.
  Parts Next();

 private:
  double NumRounds() const;
  Parts Read() const;

  const int port_;
  double num_rounds_;
  Parts before_;
};

// Lists of them, as spreads.
class PartsOfRounds {
 public:
  void Add(const Parts& round);
  Json Spreads() const;

 private:
  std::map<std::string, std::vector<double>> all_;
};

}  // namespace agg

#endif  // AGG_TESTS_BENCH_ROUND_PARTS_H_
