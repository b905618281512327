// A worker whose tensors are on the device of a shard of this host.
#ifndef AGG_TESTS_WORKER_CLIENT_DEVICE_WORKER_H_
#define AGG_TESTS_WORKER_CLIENT_DEVICE_WORKER_H_

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kernels/dtype.h"
#include "proto/shard_plan.h"
#include "server/base/status_macros.h"
#include "tests/worker_client/client_fixture.h"
#include "tests/worker_client/device_shard.h"
#include "tests/worker_client/device_tensors.h"
#include "tests/worker_client/fake_job.h"
#include "worker_client/agg_client.h"

namespace agg {

// The seed minus gradients of these scales.
inline std::vector<std::vector<float>> Expected(
    const Manifest& manifest, const std::vector<float>& scales) {
  std::vector<std::vector<float>> expected = Values(manifest, 1);
  for (const float scale : scales) {
    const std::vector<std::vector<float>> gradient = Values(manifest, scale);
    for (size_t t = 0; t < expected.size(); ++t) {
      std::transform(expected[t].begin(), expected[t].end(),
                     gradient[t].begin(), expected[t].begin(), std::minus<>());
    }
  }
  return expected;
}

inline Manifest ManyTensors() {
  Manifest manifest = TwoTensors();
  for (int i = 0; i < 64; ++i) {
    manifest.tensors.push_back(Spec("t" + std::to_string(i), {1000 + i}));
  }
  return manifest;
}

// A worker whose tensors are on the device of its only shard.
struct DeviceWorker {
  explicit DeviceWorker(const Manifest& manifest,
                        DType push_dtype = DType::kF32,
                        DeviceShard::Tell tell = nullptr, bool cuda_rows = true)
      : shard(manifest, push_dtype, std::move(tell)),
        job(manifest, shard.Options()),
        parameters(Values(manifest, 1)),
        gradient(Values(manifest, 0)) {
    ClientOptions options = OptionsFor(job, manifest);
    options.cuda_rows = cuda_rows;
    client = Connect(options);
    EXPECT_TRUE(client->SeedOrPull(parameters.Write()).ok());
  }

  // A round of the device's tensors.
  absl::Status Round(float scale) {
    gradient.Set(Values(client->manifest(), scale));
    return client->PushPull(gradient.Read(), {}, parameters.Write()).status();
  }
  // A round of `row` in ordinary calls: PushPull of a small one is one trip
  // (P41), whose version comes as bytes.
  absl::Status RoundInCalls(const std::vector<TensorView>& row) {
    AGG_RETURN_IF_ERROR(client->Push(row));
    AGG_ASSIGN_OR_RETURN(const RoundOutcome outcome, client->Commit({}));
    return client->Pull(outcome.version, parameters.Write());
  }

  DeviceShard shard;
  FakeJob job;
  const DeviceTensors parameters;
  DeviceTensors gradient;
  std::unique_ptr<AggClient> client;
};

}  // namespace agg

#endif  // AGG_TESTS_WORKER_CLIENT_DEVICE_WORKER_H_
