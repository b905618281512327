// Whole jobs whose step scale does more than multiply one learning rate: gains
// of tensor groups, and moments that begin anew where the scale changes.
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/optimizer_step.h"
#include "tests/reference/adascale_estimators.h"
#include "tests/server/round/recovery_fixture.h"

namespace agg {
namespace {

using testing::HasSubstr;

// --- Gains of groups ---------------------------------------------------------

// Tensors 0 and 3 are in no group, 1 in the last one, 2 in the first; nobody is
// in "unused".
Manifest GroupedManifest() {
  Manifest manifest = MakeManifest({{70}, {9}, {300}, {40}});
  manifest.tensors[1].group = "bias";
  manifest.tensors[2].group = "slow";
  return manifest;
}

ClusterOptions Grouped(int num_shards, int workers) {
  ClusterOptions options = MakeClusterOptions(num_shards, workers);
  StepScaleOptions& scale = options.coordinator.combine.step_scale;
  scale.kind = StepScale::kAdascale;
  scale.gain_scope = GainScope::kPerGroup;
  scale.groups = {"", "slow", "unused", "bias"};
  scale.smoothing = 0.75;
  GroupOptions slow;
  slow.name = "slow";
  slow.learning_rate_factor = 0.25f;
  GroupOptions unused;
  unused.name = "unused";
  GroupOptions bias;
  bias.name = "bias";
  options.shard.groups = {slow, unused, bias};
  for (const GroupOptions& group : options.shard.groups) {
    options.coordinator.group_weight_decay.emplace_back(group.name,
                                                        group.weight_decay);
  }
  return options;
}

// A row whose groups differ in their noise.
Tensors GroupedRow(uint64_t round, int32_t rank) {
  Tensors row = RandomTensors(GroupedManifest(), RowSeed(round, rank));
  const Tensors shared = RandomTensors(GroupedManifest(), 7);
  const float noise[] = {1.0f, 0.125f, 0.5f, 1.0f};
  for (size_t t = 0; t < row.size(); ++t) {
    for (size_t i = 0; i < row[t].size(); ++i) {
      row[t][i] = 0.25f * shared[t][i] + noise[t] * row[t][i];
    }
  }
  return row;
}

void RunGroupedRounds(RunningJob* job, uint64_t end) {
  for (uint64_t round = job->cluster.Status().version; round < end; ++round) {
    for (LocalWorker& worker : job->workers) {
      ASSERT_TRUE(
          worker.Contribute(round, GroupedRow(round, worker.rank())).ok());
    }
    job->cluster.Settle();
  }
  ASSERT_EQ(job->cluster.Status().version, end);
}

// The gains of no group, "slow" and "bias", from full vectors.
std::vector<std::vector<reference::Real>> ExpectedGains(int num_rounds,
                                                        int workers) {
  reference::GroupGains groups({0, 110, 410, 419}, /*clip_first=*/true);
  std::vector<std::vector<reference::Real>> gains;
  for (int round = 0; round < num_rounds; ++round) {
    reference::Rows rows;
    for (int rank = 0; rank < workers; ++rank) {
      std::vector<double>& row = rows.emplace_back();
      const Tensors tensors = GroupedRow(static_cast<uint64_t>(round), rank);
      for (const int t : {0, 3, 2, 1}) {
        row.insert(row.end(), tensors[t].begin(), tensors[t].end());
      }
    }
    gains.push_back(groups.Next(rows, workers, 0.75L));
  }
  return gains;
}

TEST(GroupGainTest, EachGroupIsSteppedByItsOwnGain) {
  constexpr int kWorkers = 4;
  const auto gains = ExpectedGains(3, kWorkers);
  for (const int num_shards : {1, 3}) {
    RunningJob job(Grouped(num_shards, kWorkers), GroupedManifest(), kWorkers);
    for (uint64_t round = 0; round < 3; ++round) {
      const Tensors before = *job.cluster.Pull(round);
      RunGroupedRounds(&job, round + 1);
      const Tensors after = *job.cluster.Pull(round + 1);
      const Decision decision = job.cluster.reports().back().decision;
      const auto& expected = gains[round];
      ASSERT_EQ(decision.group_gains.size(), 4u);
      EXPECT_EQ(decision.group_gains[2], 1.0);
      EXPECT_NEAR(decision.gain, static_cast<double>(expected[3]), 1e-12);
      const double of_tensor[] = {static_cast<double>(expected[0]),
                                  static_cast<double>(expected[2]),
                                  0.25 * static_cast<double>(expected[1]),
                                  static_cast<double>(expected[0])};
      EXPECT_GT(std::abs(of_tensor[0] - of_tensor[1]), 0.5);
      for (size_t t = 0; t < before.size(); ++t) {
        for (size_t i = 0; i < before[t].size(); ++i) {
          double sum = 0.0;
          for (int rank = 0; rank < kWorkers; ++rank) {
            sum += static_cast<double>(GroupedRow(round, rank)[t][i]);
          }
          const double step = 0.5 * of_tensor[t] * sum / kWorkers;
          // Rounding of a rate, a mean, a product and a difference to float.
          EXPECT_NEAR(after[t][i], before[t][i] - step, 1e-6)
              << "tensor " << t << ", element " << i;
        }
      }
    }
  }
}

TEST(GroupGainTest, HasTheSameBitsForAnyNumberOfShardsAndWithCopies) {
  RunningJob one(Grouped(1, 3), GroupedManifest(), 3);
  RunGroupedRounds(&one, 4);
  const Tensors expected = *one.cluster.Pull(4);
  for (const int num_shards : {2, 4}) {
    for (const bool replicated : {false, true}) {
      ClusterOptions options = Grouped(num_shards, 3);
      options.coordinator.replicated = replicated;
      options.shard.replicated = replicated;
      RunningJob job(options, GroupedManifest(), 3);
      RunGroupedRounds(&job, 4);
      EXPECT_TRUE(SameBits(*job.cluster.Pull(4), expected));
    }
  }
}

class GroupRecoveryTest : public RecoveryTest {};

TEST_F(GroupRecoveryTest, AveragesSurviveKills) {
  RunningJob undisturbed(Grouped(3, 3), GroupedManifest(), 3);
  RunGroupedRounds(&undisturbed, 6);
  const Tensors expected = *undisturbed.cluster.Pull(6);
  ClusterOptions options = Grouped(3, 3);
  options.coordinator.replicated = true;
  options.shard.replicated = true;
  RunningJob job(options, GroupedManifest(), 3);
  for (const uint64_t version : {2, 4}) {
    RunGroupedRounds(&job, version);
    const uint64_t made = job.cluster.Status().epoch;
    if (version == 2) {
      job.cluster.RestartCoordinator();
    } else {
      job.cluster.RestartShard(1);
    }
    ResumeAll(&job, version, made);
  }
  RunGroupedRounds(&job, 6);
  EXPECT_TRUE(SameBits(*job.cluster.Pull(6), expected));
}

TEST_F(GroupRecoveryTest, AveragesAreInCheckpoints) {
  RunningJob undisturbed(Grouped(2, 3), GroupedManifest(), 3);
  RunGroupedRounds(&undisturbed, 6);
  const Tensors expected = *undisturbed.cluster.Pull(6);
  ClusterOptions options = Grouped(2, 3);
  options.checkpoint_path = folder_;
  options.coordinator.checkpoint.enabled = true;
  options.coordinator.checkpoint.every_rounds = 4;
  RunningJob job(options, GroupedManifest(), 3);
  RunGroupedRounds(&job, 4);
  job.cluster.AwaitCheckpoints(1);
  job.cluster.RestartAll();
  ASSERT_EQ(job.cluster.Status().version, 4u);
  for (LocalWorker& worker : job.workers) {
    ASSERT_EQ(worker.Join(), absl::OkStatus());
  }
  RunGroupedRounds(&job, 6);
  EXPECT_TRUE(SameBits(*job.cluster.Pull(6), expected));
}

// --- Moments -----------------------------------------------------------------

class MomentsTest : public RecoveryTest {
 protected:
  // Two workers; a third may join.
  ClusterOptions Adam(int num_shards, int workers = 2,
                      bool reset_moments = true) const {
    ClusterOptions options = MakeClusterOptions(num_shards, workers);
    OptimizerOptions adam;
    adam.kind = OptimizerKind::kAdam;
    SetOptimizer(adam, &options);
    options.coordinator.reset_moments = reset_moments;
    return options;
  }
  ClusterOptions Replicated(int num_shards) const {
    ClusterOptions options = Adam(num_shards);
    options.coordinator.replicated = true;
    options.shard.replicated = true;
    return options;
  }
  ClusterOptions Checkpointed(int num_shards) const {
    ClusterOptions options = Adam(num_shards);
    options.checkpoint_path = folder_;
    options.coordinator.checkpoint.enabled = true;
    options.coordinator.checkpoint.every_rounds = 1;
    return options;
  }

  // Its first round is the one after the open one.
  static void Join(RunningJob* job, int32_t rank) {
    job->workers.push_back(Joined(&job->cluster, rank, SmallManifest()));
  }
  static void LeaveLast(RunningJob* job) {
    ASSERT_EQ(job->workers.back().Leave(), absl::OkStatus());
    job->workers.pop_back();
    job->cluster.Settle();
  }
  static std::optional<double> ResetFrom(RunningJob* job) {
    return job->cluster.reports().back().moments_of;
  }

  // What `rounds` of these workers make of `start` with an optimizer that is
  // new; their rows are those of `first` and later rounds.
  Tensors FreshRounds(const Tensors& start, int workers, uint64_t first,
                      uint64_t rounds) const {
    RunningJob job(Adam(1, workers, false), SmallManifest(), workers, start);
    for (uint64_t round = 0; round < rounds; ++round) {
      for (LocalWorker& worker : job.workers) {
        EXPECT_TRUE(
            worker
                .Contribute(
                    round, RandomTensors(SmallManifest(),
                                         RowSeed(first + round, worker.rank())))
                .ok());
      }
      job.cluster.Settle();
    }
    return *job.cluster.Pull(rounds);
  }
};

TEST_F(MomentsTest, BeginAnewWhereTheScaleChanges) {
  for (const int num_shards : {1, 2, 3}) {
    for (const bool replicated : {false, true}) {
      if (replicated && num_shards == 1) continue;
      RunningJob job(replicated ? Replicated(num_shards) : Adam(num_shards),
                     SmallManifest(), 2);
      RunTo(&job, 2);
      Join(&job, 2);
      RunTo(&job, 3);
      EXPECT_EQ(ResetFrom(&job), std::nullopt);
      const Tensors third = *job.cluster.Pull(3);
      RunTo(&job, 4);
      EXPECT_EQ(ResetFrom(&job), 2.0);
      EXPECT_THAT(
          job.cluster.reports().back().message,
          HasSubstr("the optimizer's moments began anew: 3 baseline batches "
                    "after 2"));
      RunTo(&job, 5);
      EXPECT_EQ(ResetFrom(&job), std::nullopt);
      const Tensors fifth = *job.cluster.Pull(5);
      EXPECT_TRUE(SameBits(fifth, FreshRounds(third, 3, 3, 2)));
      LeaveLast(&job);
      RunTo(&job, 7);
      EXPECT_TRUE(SameBits(*job.cluster.Pull(7), FreshRounds(fifth, 2, 5, 2)));
    }
  }
}

TEST_F(MomentsTest, StayWithoutTheOption) {
  RunningJob job(Adam(2, 2, /*reset_moments=*/false), SmallManifest(), 2);
  RunTo(&job, 2);
  Join(&job, 2);
  RunTo(&job, 3);
  const Tensors third = *job.cluster.Pull(3);
  RunTo(&job, 4);
  EXPECT_EQ(job.cluster.reports().back().rows.size(), 3u);
  EXPECT_EQ(ResetFrom(&job), std::nullopt);
  EXPECT_FALSE(SameBits(*job.cluster.Pull(4), FreshRounds(third, 3, 3, 1)));
}

// A row that is left out is no change of scale, and neither is a round that is
// skipped, of whatever scale.
TEST_F(MomentsTest, ARowWithoutANumberIsNoChange) {
  RunningJob job(Adam(2), SmallManifest(), 2);
  RunTo(&job, 2);
  const auto contribute = [&](uint64_t round, int num_bad) {
    for (LocalWorker& worker : job.workers) {
      Tensors row =
          RandomTensors(SmallManifest(), RowSeed(round, worker.rank()));
      if (worker.rank() < num_bad) row[2][5] = std::nanf("");
      ASSERT_TRUE(worker.Contribute(round, row).ok());
    }
    job.cluster.Settle();
  };
  contribute(2, 1);
  EXPECT_TRUE(job.cluster.reports().back().applied);
  EXPECT_EQ(ResetFrom(&job), std::nullopt);
  const Tensors third = *job.cluster.Pull(3);
  Join(&job, 2);
  contribute(3, 3);
  EXPECT_FALSE(job.cluster.reports().back().applied);
  EXPECT_EQ(ResetFrom(&job), std::nullopt);
  contribute(4, 0);
  EXPECT_EQ(ResetFrom(&job), 2.0);
  EXPECT_TRUE(SameBits(*job.cluster.Pull(5), FreshRounds(third, 3, 4, 1)));
}

// Before, at and after the round in which all shards reset.
TEST_F(MomentsTest, AKilledShardOrCoordinatorChangesNothing) {
  RunningJob undisturbed(Adam(3), SmallManifest(), 2);
  RunTo(&undisturbed, 3);
  Join(&undisturbed, 2);
  RunTo(&undisturbed, 6);
  const Tensors expected = *undisturbed.cluster.Pull(6);
  for (const uint64_t killed_at : {2, 3, 4, 5}) {
    for (const int shard : {0, 1, 2}) {
      RunningJob job(Replicated(3), SmallManifest(), 2);
      for (uint64_t version = 1; version <= 6; ++version) {
        if (version == 4) Join(&job, 2);
        RunTo(&job, version);
        if (version != killed_at) continue;
        const uint64_t made = job.cluster.Status().epoch;
        if (shard == 0) {
          job.cluster.RestartCoordinator();
        } else {
          job.cluster.RestartShard(shard);
        }
        ASSERT_EQ(job.cluster.Status().version, version);
        ResumeAll(&job, version, made);
      }
      EXPECT_TRUE(SameBits(*job.cluster.Pull(6), expected))
          << "shard " << shard << " after version " << killed_at;
    }
  }
}

// The scale and the steps are in the checkpoint: a job that comes back with as
// many workers goes on, and one of whose workers one leaves then begins anew.
TEST_F(MomentsTest, ACheckpointKnowsTheScaleAndTheSteps) {
  RunningJob undisturbed(Adam(2), SmallManifest(), 2);
  RunTo(&undisturbed, 4);
  RunningJob job(Checkpointed(2), SmallManifest(), 2);
  uint64_t sealed = 0;
  const auto run_to = [&job, &sealed](uint64_t last) {
    while (job.cluster.Status().version < last) {
      RunTo(&job, job.cluster.Status().version + 1);
      job.cluster.AwaitCheckpoints(++sealed);
    }
  };
  const auto restart = [&job, &sealed] {
    job.cluster.RestartAll();
    sealed = 0;
    for (LocalWorker& worker : job.workers) {
      ASSERT_EQ(worker.Join(), absl::OkStatus());
    }
  };
  run_to(3);
  restart();
  ASSERT_EQ(job.cluster.Status().version, 3u);
  Join(&job, 2);
  run_to(4);
  EXPECT_EQ(ResetFrom(&job), std::nullopt);
  EXPECT_TRUE(SameBits(*job.cluster.Pull(4), *undisturbed.cluster.Pull(4)));
  run_to(5);
  EXPECT_EQ(ResetFrom(&job), 2.0);
  const Tensors fifth = *job.cluster.Pull(5);
  EXPECT_TRUE(SameBits(fifth, FreshRounds(*job.cluster.Pull(4), 3, 4, 1)));
  restart();
  ASSERT_EQ(job.cluster.Status().version, 5u);
  LeaveLast(&job);
  run_to(6);
  EXPECT_EQ(ResetFrom(&job), 3.0);
  run_to(7);
  EXPECT_EQ(ResetFrom(&job), std::nullopt);
  EXPECT_TRUE(SameBits(*job.cluster.Pull(7), FreshRounds(fifth, 2, 5, 2)));
}

// Examples say the scale where the job has a baseline batch.
TEST_F(MomentsTest, ExamplesAreTheScaleOfABaselineBatch) {
  ClusterOptions options = Adam(1, 1);
  options.coordinator.combine.step_scale.baseline_examples = 8;
  RunningJob job(options, SmallManifest(), 1);
  const auto run = [&](uint64_t round, int64_t examples) {
    LocalWorker& worker = job.workers[0];
    ASSERT_EQ(worker.Push(round, RandomTensors(SmallManifest(), round)),
              absl::OkStatus());
    RowInfo info;
    info.examples = examples;
    worker.Commit(round, info);
    job.cluster.Settle();
    ASSERT_EQ(job.cluster.Status().version, round + 1);
  };
  run(0, 16);
  run(1, 16);
  EXPECT_EQ(ResetFrom(&job), std::nullopt);
  run(2, 12);
  EXPECT_EQ(ResetFrom(&job), 2.0);
  run(3, 12);
  EXPECT_EQ(ResetFrom(&job), std::nullopt);
  EXPECT_EQ(job.cluster.reports().back().num_batches, 1.5);
}

}  // namespace
}  // namespace agg
