// Whole jobs: the parameters are the same bits for every number of shards,
// arrival order and thread count, and are what the papers say.
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

constexpr int kRounds = 3;

// One tensor larger than a slice, a scalar, an empty one, small ones: five
// slices, so that the sixth shard has none.
Manifest MixedManifest() {
  return MakeManifest({{kMaxSliceElements + 77}, {}, {0, 4}, {33}, {10, 100}});
}
Manifest SmallManifest() { return MakeManifest({{7}, {}, {3, 0}, {40}}); }

uint64_t RowSeed(uint64_t round, int rank) { return 77 * round + 1000 + rank; }

// Runs kRounds and gives the last version. Workers come in an order that
// depends on `shuffle`, and their frames, too.
Tensors RunJob(const ClusterOptions& options, const Manifest& manifest,
               int num_workers, uint64_t shuffle, DType pull = DType::kF32) {
  RunningJob job(options, manifest, num_workers);
  std::mt19937_64 random(shuffle);
  std::vector<LocalWorker*> order;
  for (LocalWorker& worker : job.workers) order.push_back(&worker);
  for (uint64_t round = 0; round < kRounds; ++round) {
    if (shuffle != 0) std::shuffle(order.begin(), order.end(), random);
    std::vector<OutcomeReply> replies;
    for (LocalWorker* worker : order) {
      const Tensors row =
          RandomTensors(manifest, RowSeed(round, worker->rank()));
      EXPECT_EQ(worker->Push(round, row, shuffle), absl::OkStatus());
      replies.push_back(worker->Commit(round));
    }
    job.cluster.Settle();
    for (const OutcomeReply& reply : replies) {
      EXPECT_EQ(reply.num_calls(), 1);
      EXPECT_TRUE(reply.Get().ok()) << reply.Get().status();
      EXPECT_TRUE(reply.Get()->included);
      EXPECT_EQ(reply.Get()->version, round + 1);
    }
  }
  absl::StatusOr<Tensors> tensors = job.cluster.Pull(kRounds, pull);
  EXPECT_TRUE(tensors.ok()) << tensors.status();
  return tensors.value_or(Tensors());
}

class WholeJobTest : public testing::TestWithParam<const char*> {};

TEST_P(WholeJobTest, SameBitsForEveryNumberOfShards) {
  ClusterOptions options = MakeClusterOptions(1, 3, GetParam());
  OptimizerOptions optimizer;
  optimizer.momentum = 0.9f;
  SetOptimizer(optimizer, &options);
  const Tensors expected = RunJob(options, MixedManifest(), 3, 0);
  for (int num_shards : {2, 3, 6}) {
    options.num_shards = num_shards;
    EXPECT_TRUE(SameBits(RunJob(options, MixedManifest(), 3, 5), expected))
        << num_shards << " shards";
  }
}

TEST_P(WholeJobTest, SameBitsOfBf16RowsAndPulls) {
  ClusterOptions options = MakeClusterOptions(1, 2, GetParam());
  options.shard.push_dtype = DType::kBF16;
  options.shard.pull_dtype = DType::kBF16;
  const Tensors expected = RunJob(options, SmallManifest(), 2, 0, DType::kBF16);
  options.num_shards = 3;
  EXPECT_TRUE(
      SameBits(RunJob(options, SmallManifest(), 2, 9, DType::kBF16), expected));
}

TEST_P(WholeJobTest, SameBitsOfInt8Rows) {
  ClusterOptions options = MakeClusterOptions(1, 3, GetParam());
  options.shard.push_dtype = DType::kI8;
  options.shard.pull_dtype = DType::kBF16;
  const Tensors expected = RunJob(options, MixedManifest(), 3, 0);
  for (int num_shards : {2, 3}) {
    options.num_shards = num_shards;
    EXPECT_TRUE(SameBits(RunJob(options, MixedManifest(), 3, 7), expected))
        << num_shards << " shards";
  }
}

TEST_P(WholeJobTest, OneAndManyWorkers) {
  for (int num_workers : {1, 33}) {
    ClusterOptions options = MakeClusterOptions(1, num_workers, GetParam());
    const Tensors expected = RunJob(options, SmallManifest(), num_workers, 0);
    options.num_shards = 3;
    for (uint64_t shuffle : {1, 2}) {
      EXPECT_TRUE(SameBits(
          RunJob(options, SmallManifest(), num_workers, shuffle), expected))
          << num_workers << " workers, order " << shuffle;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, WholeJobTest,
                         testing::Values("mean", "sum", "adasum"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           return std::string(info.param);
                         });

// A scale that is not finite makes its row so: it is left out, by name, and the
// next round's row of that worker counts again. What is absent is zero then.
TEST(Int8JobTest, LeavesRowsWithANonFiniteScaleOut) {
  Manifest manifest;
  manifest.tensors = {{"a", {700}, "", false}, {"b", {5}, "", true}};
  ClusterOptions options = MakeClusterOptions(2, 2, "mean");
  options.shard.push_dtype = DType::kI8;
  RunningJob job(options, manifest, 2);
  const Tensors start = *job.cluster.Pull(0);
  Tensors good = FilledTensors(manifest, 127.0f);
  Tensors bad = good;
  bad[1][4] = std::numeric_limits<float>::infinity();
  const auto contribute = [&](int rank, uint64_t round, const Tensors& row,
                              const std::set<int32_t>& absent) {
    LocalWorker& worker = job.workers[static_cast<size_t>(rank)];
    EXPECT_EQ(worker.Push(round, row, 0, absent), absl::OkStatus());
    return worker.Commit(round);
  };
  contribute(0, 0, good, {});
  const OutcomeReply outcome = contribute(1, 0, bad, {});
  job.cluster.Settle();
  ASSERT_TRUE(outcome.Get().ok()) << outcome.Get().status();
  EXPECT_EQ(outcome.Get()->excluded_ranks, std::vector<int32_t>({1}));
  contribute(0, 1, good, {});
  const OutcomeReply next = contribute(1, 1, good, {1});
  job.cluster.Settle();
  ASSERT_TRUE(next.Get().ok()) << next.Get().status();
  EXPECT_TRUE(next.Get()->excluded_ranks.empty());
  const Tensors actual = *job.cluster.Pull(2);
  // sgd with a rate of 0.5: first 127, then 127 of a and 63.5 of b.
  EXPECT_FLOAT_EQ(actual[0][3], start[0][3] - 127.0f);
  EXPECT_FLOAT_EQ(actual[1][4], start[1][4] - 63.5f - 31.75f);
}

// The oracle: PyTorch's SGD with momentum over the mean, in double.
TEST(WholeJobOracleTest, MeanAndMomentumAreThoseOfTheFormulas) {
  const Manifest manifest = SmallManifest();
  ClusterOptions options = MakeClusterOptions(3, 4, "mean");
  OptimizerOptions optimizer;
  optimizer.momentum = 0.9f;
  SetOptimizer(optimizer, &options);
  const Tensors actual = RunJob(options, manifest, 4, 3);
  const Tensors start = RandomTensors(manifest, 1);
  for (size_t t = 0; t < start.size(); ++t) {
    for (size_t e = 0; e < start[t].size(); ++e) {
      double weight = static_cast<double>(start[t][e]);
      double momentum = 0.0;
      for (uint64_t round = 0; round < kRounds; ++round) {
        double mean = 0.0;
        for (int rank = 0; rank < 4; ++rank) {
          const Tensors row = RandomTensors(manifest, RowSeed(round, rank));
          mean += static_cast<double>(row[t][e]) / 4.0;
        }
        momentum = static_cast<double>(0.9f) * momentum + mean;
        weight -= 0.5 * momentum;
      }
      EXPECT_NEAR(actual[t][e], weight, 1e-6) << t << "," << e;
    }
  }
}

// Rows and commits scaled by a power of two change no bit.
TEST(WholeJobOracleTest, LossScaleIsRemoved) {
  const Manifest manifest = SmallManifest();
  for (const char* rule : {"mean", "adasum"}) {
    Tensors results[2];
    for (int scaled = 0; scaled < 2; ++scaled) {
      RunningJob job(MakeClusterOptions(2, 2, rule), manifest, 2);
      RowInfo row;
      row.loss_scale = scaled != 0 ? 1024.0 : 1.0;
      for (LocalWorker& worker : job.workers) {
        Tensors values = RandomTensors(manifest, RowSeed(0, worker.rank()));
        for (std::vector<float>& tensor : values) {
          for (float& value : tensor) {
            value *= static_cast<float>(row.loss_scale);
          }
        }
        ASSERT_EQ(worker.Push(0, values), absl::OkStatus());
        worker.Commit(0, row);
      }
      results[scaled] = *job.cluster.Pull(1);
    }
    EXPECT_TRUE(SameBits(results[0], results[1])) << rule;
    EXPECT_FALSE(SameBits(results[0], RandomTensors(manifest, 1)));
  }
}

class TrustTest : public testing::TestWithParam<OptimizerKind> {};

// The norms are exchanged between shards, so that a tensor in two of them has
// one trust ratio.
TEST_P(TrustTest, SameBitsForEveryNumberOfShards) {
  ClusterOptions options = MakeClusterOptions(1, 2, "mean");
  OptimizerOptions optimizer;
  optimizer.kind = GetParam();
  SetOptimizer(optimizer, &options);
  options.coordinator.weight_decay = options.shard.weight_decay = 0.01f;
  const Manifest manifest = MakeManifest({{kMaxSliceElements + 50}, {20}});
  const Tensors expected = RunJob(options, manifest, 2, 0);
  for (int num_shards : {2, 3}) {
    options.num_shards = num_shards;
    EXPECT_TRUE(SameBits(RunJob(options, manifest, 2, 4), expected))
        << num_shards << " shards";
  }
}

// LARS by its formula, in double, for one step.
TEST(TrustOracleTest, LarsStepsByItsTrustRatio) {
  const Manifest manifest = MakeManifest({{50}, {3}});
  ClusterOptions options = MakeClusterOptions(2, 1, "mean");
  OptimizerOptions optimizer;
  optimizer.kind = OptimizerKind::kLars;
  optimizer.trust_coefficient = 0.25f;
  SetOptimizer(optimizer, &options);
  RunningJob job(options, manifest, 1);
  const Tensors weights = RandomTensors(manifest, 1);
  const Tensors gradient = RandomTensors(manifest, 2);
  ASSERT_TRUE(job.workers[0].Contribute(0, gradient).ok());
  const Tensors actual = *job.cluster.Pull(1);
  for (size_t t = 0; t < weights.size(); ++t) {
    double w2 = 0.0;
    double g2 = 0.0;
    for (size_t e = 0; e < weights[t].size(); ++e) {
      w2 += std::pow(static_cast<double>(weights[t][e]), 2);
      g2 += std::pow(static_cast<double>(gradient[t][e]), 2);
    }
    const double trust = 0.25 * std::sqrt(w2) / std::sqrt(g2);
    for (size_t e = 0; e < weights[t].size(); ++e) {
      EXPECT_NEAR(actual[t][e], weights[t][e] - 0.5 * trust * gradient[t][e],
                  1e-6);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, TrustTest,
                         testing::Values(OptimizerKind::kLars,
                                         OptimizerKind::kLamb),
                         [](const testing::TestParamInfo<OptimizerKind>& info) {
                           return info.param == OptimizerKind::kLars ? "lars"
                                                                     : "lamb";
                         });

}  // namespace
}  // namespace agg
