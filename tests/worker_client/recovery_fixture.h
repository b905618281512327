// A worker of a job whose epochs end, and what it has heard.
#ifndef AGG_TESTS_WORKER_CLIENT_RECOVERY_FIXTURE_H_
#define AGG_TESTS_WORKER_CLIENT_RECOVERY_FIXTURE_H_

#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker_client/client_fixture.h"
#include "tests/worker_client/epoch_job.h"
#include "worker_client/agg_client.h"

namespace agg {

using Tensors = std::vector<std::vector<float>>;

// The events of one client. Thread-safe.
class Heard {
 public:
  void Add(const ClientEvent& event) {
    std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(event);
    changed_.notify_all();
  }
  // Waits for one of the kind: the first.
  ClientEvent Await(ClientEvent::Kind kind) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      for (const ClientEvent& event : events_) {
        if (event.kind == kind) return event;
      }
      changed_.wait(lock);
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ClientEvent> events_;
};

class RecoveryTest : public ::testing::Test {
 protected:
  static constexpr char kReason[] = "shard 1 (10.0.0.1:1) is lost";

  ClientOptions Options() {
    ClientOptions options;
    options.coordinator = job.coordinator();
    options.manifest = manifest;
    // Short enough for a server that has moved.
    options.reconnect_window = absl::Milliseconds(200);
    options.on_event = [this](const ClientEvent& event) { heard.Add(event); };
    return options;
  }
  void Begin() { Begin(Options()); }
  void Begin(const ClientOptions& options) {
    client = Connect(options);
    ASSERT_NE(client, nullptr);
    parameters = seed;
    const absl::Status status = client->SeedOrPull(Write(&parameters));
    ASSERT_TRUE(status.ok()) << status;
  }
  // A complete round with the gradient g(scale).
  absl::StatusOr<RoundOutcome> Step(float scale) {
    const Tensors gradient = Values(manifest, scale);
    return client->PushPull(Read(gradient), {}, Write(&parameters));
  }
  std::future<absl::StatusOr<RoundOutcome>> BeginStep(float scale) {
    return std::async(std::launch::async,
                      [this, scale] { return Step(scale); });
  }
  // The epoch ends; `meanwhile`, and the next one begins.
  void NextEpoch(const std::function<void()>& meanwhile = [] {}) {
    job.End(kReason);
    meanwhile();
    job.Open();
  }
  static void ExpectIncluded(const absl::StatusOr<RoundOutcome>& outcome) {
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_TRUE(outcome->included);
  }
  std::unique_ptr<AggClient> Observer(absl::Duration reconnect_window) const {
    ClientOptions options;
    options.coordinator = job.coordinator();
    options.observer = true;
    options.reconnect_window = reconnect_window;
    return Connect(options);
  }
  // The epoch ends in a commit; `meanwhile`, and the next one begins.
  absl::StatusOr<RoundOutcome> StepThrough(
      float scale, const std::function<void()>& meanwhile) {
    job.Hold();
    auto pending = BeginStep(scale);
    job.AwaitCommit(static_cast<int>(job.used().size()) + 2);
    job.End(kReason);
    meanwhile();
    job.Release();
    job.Open();
    return pending.get();
  }
  // What the parameters are after gradients of these scales.
  Tensors After(const std::vector<float>& scales) const {
    Tensors expected = seed;
    for (const float scale : scales) {
      const Tensors gradient = Values(manifest, scale);
      for (size_t t = 0; t < expected.size(); ++t) {
        for (size_t i = 0; i < expected[t].size(); ++i) {
          expected[t][i] -= gradient[t][i];
        }
      }
    }
    return expected;
  }

  const Manifest manifest = MixedManifest();
  const Tensors seed = Values(manifest, 1);
  EpochJob job{manifest, 2};
  Heard heard;  // outlives the client
  Tensors parameters;
  std::unique_ptr<AggClient> client;
};

}  // namespace agg

#endif  // AGG_TESTS_WORKER_CLIENT_RECOVERY_FIXTURE_H_
