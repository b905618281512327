// Tensors and connections of the client's tests.
#ifndef AGG_TESTS_WORKER_CLIENT_CLIENT_FIXTURE_H_
#define AGG_TESTS_WORKER_CLIENT_CLIENT_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/shard_plan.h"
#include "tests/worker_client/fake_job.h"
#include "worker_client/agg_client.h"

namespace agg {

inline TensorSpec Spec(std::string name, std::vector<int64_t> shape,
                       bool optional = false) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.shape = std::move(shape);
  spec.optional = optional;
  return spec;
}

// A tensor of three slices, an empty one, a scalar, an optional one.
inline Manifest MixedManifest() {
  return {{Spec("big", {2 * kMaxSliceElements + 5}), Spec("empty", {3, 0}),
           Spec("scalar", {}), Spec("maybe", {7}, true), Spec("w", {33, 3})}};
}

inline Manifest TwoTensors() { return {{Spec("a", {8}), Spec("b", {4})}}; }

// Tensors with deterministic values that bf16 and f16 must round.
inline std::vector<std::vector<float>> Values(const Manifest& manifest,
                                              float scale) {
  std::vector<std::vector<float>> values;
  for (const TensorSpec& spec : manifest.tensors) {
    std::vector<float> tensor(NumElements(spec));
    for (size_t i = 0; i < tensor.size(); ++i) {
      tensor[i] = scale * (static_cast<float>(i % 1009) / 97 - 3.3f);
    }
    values.push_back(std::move(tensor));
  }
  return values;
}

inline std::vector<TensorView> Read(
    const std::vector<std::vector<float>>& values) {
  std::vector<TensorView> views;
  for (const auto& tensor : values) {
    views.push_back(absl::MakeConstSpan(tensor));
  }
  return views;
}

inline std::vector<MutableTensorView> Write(
    std::vector<std::vector<float>>* values) {
  std::vector<MutableTensorView> views;
  for (auto& tensor : *values) views.push_back(absl::MakeSpan(tensor));
  return views;
}

inline ClientOptions OptionsFor(const FakeJob& job, Manifest manifest) {
  ClientOptions options;
  options.coordinator = job.coordinator();
  options.manifest = std::move(manifest);
  options.reconnect_window = absl::Seconds(30);
  return options;
}

inline std::unique_ptr<AggClient> Connect(const ClientOptions& options) {
  auto client = AggClient::Connect(options);
  EXPECT_TRUE(client.ok()) << client.status();
  return client.ok() ? *std::move(client) : nullptr;
}

// A client alone in a FakeJob. A test sets what differs, and Begin()s.
class SeededTest : public ::testing::Test {
 protected:
  // Starts the job, connects, and seeds it with Values(manifest, scale).
  void Begin(float scale = 1) {
    job = std::make_unique<FakeJob>(manifest, of_job);
    options.coordinator = job->coordinator();
    options.manifest = manifest;
    client = Connect(options);
    ASSERT_NE(client, nullptr);
    parameters = Values(manifest, scale);
    const absl::Status status = client->SeedOrPull(Write(&parameters));
    ASSERT_TRUE(status.ok()) << status;
  }

  Manifest manifest = TwoTensors();
  FakeJob::Options of_job;
  ClientOptions options = [] {
    ClientOptions patient;
    patient.reconnect_window = absl::Seconds(30);
    return patient;
  }();
  std::unique_ptr<FakeJob> job;
  std::unique_ptr<AggClient> client;
  std::vector<std::vector<float>> parameters;
};

inline std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

}  // namespace agg

#endif  // AGG_TESTS_WORKER_CLIENT_CLIENT_FIXTURE_H_
