// CUDA's errors through real servers and clients, on the emulated device,
// which fails when asked to.
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cuda_device.h"
#include "tests/e2e/hooked_backend.h"
#include "tests/e2e/loopback_job.h"
#include "tests/kernels/cuda/emulator/device.h"

namespace agg {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

const char kConfig[] =
    "backend: \"cuda\" workers: 2 combination { rule: \"adasum\" } "
    "learning_rate { rate: 0.1 } ";
// Its bias correction counts the steps that were applied.
const char kAdamW[] = "optimizer { kind: \"adamw\" } ";

// Makes the backends of `num_shards`; the hooks are those of `hooked_shard`.
BackendMaker Hooked(int num_shards, int hooked_shard, BackendHooks hooks) {
  // LoopbackJob makes them in descending order.
  const auto next = std::make_shared<int>(num_shards);
  return [next, hooked_shard, hooks](absl::string_view name,
                                     const BackendOptions& options)
             -> absl::StatusOr<std::unique_ptr<Backend>> {
    absl::StatusOr<std::unique_ptr<Backend>> backend =
        TheCudaDevice().make_backend(name, options);
    if (--*next != hooked_shard || !backend.ok()) return backend;
    return std::make_unique<HookedBackend>(*std::move(backend), hooks);
  };
}

// Workers that step together.
class Team {
 public:
  Team(const LoopbackJob& job, const Manifest& manifest)
      : manifest_(manifest), clients_(2), parameters_(2) {
    RunWorkers(2, [&](int rank) {
      clients_[rank] = job.Connect(rank, manifest);
      parameters_[rank] = MakeTensors(manifest, 7);
      const absl::Status status =
          clients_[rank]->SeedOrPull(MutableViews(&parameters_[rank]));
      EXPECT_TRUE(status.ok()) << status;
    });
  }

  // By rank.
  std::vector<absl::StatusOr<RoundOutcome>> Step(uint64_t stream) {
    std::vector<absl::StatusOr<RoundOutcome>> outcomes(
        2, absl::UnknownError("never set"));
    RunWorkers(2, [&](int rank) {
      const HostTensors gradient = MakeTensors(manifest_, 64 * stream + rank);
      outcomes[rank] = clients_[rank]->PushPull(
          Views(gradient), {}, MutableViews(&parameters_[rank]));
    });
    return outcomes;
  }

  // Fails the test unless everybody's row is in `version`.
  void ExpectApplied(uint64_t stream, uint64_t version) {
    for (const auto& outcome : Step(stream)) {
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_EQ(outcome->kind, RoundOutcome::Kind::kApplied);
      EXPECT_TRUE(outcome->included);
      EXPECT_EQ(outcome->version, version);
    }
  }

  AggClient* client(int rank) { return clients_[rank].get(); }
  const HostTensors& parameters(int rank) const { return parameters_[rank]; }

 private:
  const Manifest manifest_;
  std::vector<std::unique_ptr<AggClient>> clients_;
  std::vector<HostTensors> parameters_;
};

class CudaFailure : public testing::Test {
 protected:
  void SetUp() override {
    emulator::SetLazy(true);
    emulator::SetDeviceBytes(int64_t{1} << 40);
  }

  // The parameters of a job without failures that applies these gradients.
  HostTensors Undisturbed(const std::vector<uint64_t>& streams) {
    LoopbackJob job(1, absl::StrCat(kConfig, kAdamW),
                    TheCudaDevice().make_backend);
    Team team(job, manifest_);
    uint64_t version = 0;
    for (const uint64_t stream : streams) {
      team.ExpectApplied(stream, ++version);
    }
    return team.parameters(0);
  }

  const Manifest manifest_ = ShapedManifest({{3000}, {17, 5}, {}, {40}, {900}});
};

// A failing call before coefficients, once: `fail` asks for it on the thread of
// the shard's Gram.
class CudaFailureOnce : public CudaFailure {
 protected:
  void ExpectRetried(int shard, const std::function<void()>& fail) {
    std::atomic<bool> armed{false};
    BackendHooks hooks;
    hooks.before_gram = [&] {
      if (armed.exchange(false)) fail();
    };
    // So that it is the Close that fails, not an early Gram before it.
    LoopbackJob job(
        3, absl::StrCat(kConfig, kAdamW), Hooked(3, shard, hooks),
        [](ServerOptions* options) { options->shard.early_gram = false; });
    Team team(job, manifest_);
    team.ExpectApplied(1, 1);
    const int64_t num_failures = emulator::NumFailures();
    armed = true;
    team.ExpectApplied(2, 2);
    EXPECT_EQ(emulator::NumFailures(), num_failures + 1);
    team.ExpectApplied(3, 3);
    const HostTensors expected = Undisturbed({1, 2, 3});
    EXPECT_TRUE(team.parameters(0) == expected);
    EXPECT_TRUE(team.parameters(1) == expected);
  }
};

TEST_F(CudaFailureOnce, OfALaunchOnTheCoordinatorIsRetried) {
  ExpectRetried(0, [] { emulator::FailNextLaunch(cudaErrorLaunchFailure); });
}

TEST_F(CudaFailureOnce, OfALaunchOnAnotherShardIsRetried) {
  ExpectRetried(2, [] { emulator::FailNextLaunch(cudaErrorLaunchFailure); });
}

TEST_F(CudaFailureOnce, OfTheSecondLaunchIsRetried) {
  ExpectRetried(1,
                [] { emulator::FailLaunchAfter(1, cudaErrorLaunchFailure); });
}

// What was not copied must not be taken for copied.
TEST_F(CudaFailureOnce, OfARowsCopyIsRetried) {
  ExpectRetried(1, [] { emulator::FailNextCopy(cudaErrorInvalidValue); });
}

TEST_F(CudaFailure, ThatComesBackSkipsTheRoundOnAllShards) {
  std::atomic<bool> failing{false};
  BackendHooks hooks;
  hooks.before_gram = [&] {
    if (failing) emulator::FailNextLaunch(cudaErrorLaunchFailure);
  };
  LoopbackJob job(3, absl::StrCat(kConfig, kAdamW), Hooked(3, 1, hooks));
  Team team(job, manifest_);
  team.ExpectApplied(1, 1);
  const HostTensors before = team.parameters(0);
  failing = true;
  for (const auto& outcome : team.Step(2)) {
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->kind, RoundOutcome::Kind::kSkipped);
    EXPECT_FALSE(outcome->included);
    EXPECT_EQ(outcome->version, 2u);
    EXPECT_THAT(outcome->message, AllOf(HasSubstr("cudaErrorLaunchFailure"),
                                        HasSubstr("shard 1")));
  }
  failing = false;
  EXPECT_TRUE(team.parameters(0) == before);
  EXPECT_TRUE(team.parameters(1) == before);
  team.ExpectApplied(3, 3);
  EXPECT_TRUE(team.parameters(0) == Undisturbed({1, 3}));
}

// After coefficients a failure ends the epoch: everybody gets the error, and
// nobody gets what the step has begun.
class CudaFailureAfterCoefficients : public CudaFailure {
 protected:
  void ExpectTheEnd(const Manifest& manifest, const std::string& config,
                    const BackendHooks& hooks, std::atomic<bool>* armed) {
    LoopbackJob job(2, absl::StrCat(kConfig, config), Hooked(2, 1, hooks));
    Team team(job, manifest);
    team.ExpectApplied(1, 1);
    const int64_t num_failures = emulator::NumFailures();
    *armed = true;
    for (const auto& outcome : team.Step(2)) ExpectLost(outcome.status());
    EXPECT_EQ(emulator::NumFailures(), num_failures + 1);
    for (int rank = 0; rank < 2; ++rank) {
      HostTensors parameters = MakeTensors(manifest, 9);
      for (const uint64_t version : {1, 2}) {
        ExpectLost(team.client(rank)->Pull(version, MutableViews(&parameters)));
      }
      ExpectLost(
          team.client(rank)->PullLatest(MutableViews(&parameters)).status());
    }
    for (const auto& outcome : team.Step(3)) ExpectLost(outcome.status());
  }

  static void ExpectLost(const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("shard 1"));
  }
};

// More slices than one launch takes: the first part of the step is done.
TEST_F(CudaFailureAfterCoefficients, WithinAnUpdatePublishesNoPartOfIt) {
  const std::vector<std::vector<int64_t>> scalars(4000);
  std::atomic<bool> armed{false};
  BackendHooks hooks;
  hooks.before_update = [&] {
    if (!armed.exchange(false)) return;
    emulator::FailLaunchAfter(1, cudaErrorLaunchFailure);
  };
  // With second copies the step is made of what was combined before (P17).
  ExpectTheEnd(ShapedManifest(scalars),
               absl::StrCat(kAdamW, "replication: \"none\" "), hooks, &armed);
}

TEST_F(CudaFailureAfterCoefficients, OfTheNormsEndsTheEpochToo) {
  std::atomic<bool> armed{false};
  BackendHooks hooks;
  hooks.before_norms = [&] {
    if (!armed.exchange(false)) return;
    emulator::FailNextLaunch(cudaErrorLaunchFailure);
  };
  ExpectTheEnd(manifest_, "optimizer { kind: \"lamb\" }", hooks, &armed);
}

// CUDA gives such errors until the process ends: trying again is of no use.
TEST_F(CudaFailure, OfTheDeviceForGoodEndsTheEpochAndAsksForANewProcess) {
  std::atomic<bool> armed{false};
  BackendHooks hooks;
  hooks.before_gram = [&] {
    if (armed) emulator::BreakDevice(cudaErrorIllegalAddress);
  };
  {
    LoopbackJob job(2, absl::StrCat(kConfig, kAdamW), Hooked(2, 1, hooks));
    Team team(job, manifest_);
    team.ExpectApplied(1, 1);
    EXPECT_FALSE(job.DeviceLost(1));
    armed = true;
    for (const auto& outcome : team.Step(2)) {
      EXPECT_EQ(outcome.status().code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(std::string(outcome.status().message()),
                  HasSubstr("the CUDA device is lost"));
    }
    EXPECT_TRUE(job.DeviceLost(1));
  }
  emulator::BreakDevice(cudaSuccess);
}

TEST_F(CudaFailure, ATooLargeManifestIsRefusedAndASmallerOneCanJoin) {
  for (const int num_shards : {1, 3}) {
    SCOPED_TRACE(absl::StrCat(num_shards, " shards"));
    emulator::SetDeviceBytes(int64_t{1} << 40);
    LoopbackJob job(num_shards, absl::StrCat(kConfig, kAdamW),
                    TheCudaDevice().make_backend);
    emulator::SetDeviceBytes(emulator::AllocatedDeviceBytes() + (8 << 20));
    // Rows, weights and two moments: 16 bytes each, so that it is refused for
    // its weights on one shard, and for its rows on the sum of three.
    const Manifest large = ShapedManifest({{1 << 20}, {1 << 20}, {1 << 20}});
    for (int attempt = 0; attempt < 2; ++attempt) {
      const auto refused = AggClient::Connect(job.Options(0, large));
      EXPECT_THAT(refused.status().code(),
                  AnyOf(absl::StatusCode::kResourceExhausted,
                        absl::StatusCode::kFailedPrecondition));
      EXPECT_THAT(std::string(refused.status().message()),
                  AllOf(HasSubstr("shard"), HasSubstr("bytes of device memory"),
                        HasSubstr("free")));
    }
    Team team(job, manifest_);
    team.ExpectApplied(1, 1);
    EXPECT_TRUE(team.parameters(0) == team.parameters(1));
  }
}

}  // namespace
}  // namespace agg
