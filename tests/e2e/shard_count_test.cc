// The parameters have the same bits for any number of shards, through real
// servers and clients.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/e2e/loopback_job.h"

namespace agg {
namespace {

struct Job {
  const char* name;
  int workers;
  const char* config;
};

class ShardCount : public testing::TestWithParam<Job> {};

// A tensor of more than two slices, small ones, a scalar and an empty one.
Manifest MixedManifest() {
  return ShapedManifest({{3, 700001}, {17, 5}, {}, {4, 0, 2}, {1000}, {63}});
}

TEST_P(ShardCount, DoesNotChangeABit) {
  const Job& job = GetParam();
  const Manifest manifest = job.workers > 8
                                ? ShapedManifest({{301}, {}, {0}, {40, 3}})
                                : MixedManifest();
  HostTensors expected;
  RoundOutcome expected_outcome;
  for (int num_shards : {1, 2, 3, 6}) {
    SCOPED_TRACE(absl::StrCat(num_shards, " shards"));
    LoopbackJob loopback(
        num_shards, absl::StrCat("workers: ", job.workers, "\n", job.config));
    const RoundOutcome outcome =
        Train(loopback, manifest, job.workers, /*num_rounds=*/3);
    const HostTensors parameters = loopback.Parameters(manifest);
    EXPECT_EQ(outcome.version, 3u);
    EXPECT_EQ(outcome.ranks.size(), static_cast<size_t>(job.workers));
    if (num_shards == 1) {
      expected = parameters;
      expected_outcome = outcome;
      EXPECT_NE(parameters, MakeTensors(manifest, 7));  // it has learned
      continue;
    }
    EXPECT_EQ(parameters, expected);
    EXPECT_EQ(outcome.gain, expected_outcome.gain);
    EXPECT_EQ(outcome.tau, expected_outcome.tau);
    EXPECT_EQ(outcome.learning_rate, expected_outcome.learning_rate);
    EXPECT_EQ(outcome.combined_norm, expected_outcome.combined_norm);
  }
}

// Which worker seeds depends on who comes first: nobody must notice.
TEST(SeedOrPull, LeavesEveryWorkerWithTheSameParameters) {
  const Manifest manifest = ShapedManifest({{300}, {}, {7, 5}});
  LoopbackJob job(2,
                  "workers: 3 learning_rate { rate: 0.1 } "
                  "pull_dtype: \"bf16\"");
  HostTensors parameters[3];
  std::unique_ptr<AggClient> clients[3];
  RunWorkers(3, [&](int rank) {
    clients[rank] = job.Connect(rank, manifest);
    parameters[rank] = MakeTensors(manifest, 7);
    const absl::Status status =
        clients[rank]->SeedOrPull(MutableViews(&parameters[rank]));
    ASSERT_TRUE(status.ok()) << status;
  });
  EXPECT_EQ(parameters[0], parameters[1]);
  EXPECT_EQ(parameters[0], parameters[2]);
  EXPECT_NE(parameters[0], MakeTensors(manifest, 7));  // it was rounded
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, ShardCount,
    testing::Values(
        Job{"adasum", 3,
            "combination { rule: \"adasum\" } learning_rate { rate: 0.1 }"},
        Job{"adacons_bf16", 3,
            "combination { rule: \"adacons\" } learning_rate { rate: 0.1 } "
            "push_dtype: \"bf16\" pull_dtype: \"bf16\""},
        Job{"adascale_f16_momentum", 2,
            "step_scale { kind: \"adascale\" } learning_rate { rate: 0.1 } "
            "optimizer { kind: \"sgd\" momentum: 0.9 nesterov: true } "
            "push_dtype: \"f16\""},
        Job{"lamb", 2,
            "combination { rule: \"weighted_mean\" } clip_norm: 0.5 "
            "optimizer { kind: \"lamb\" weight_decay: 0.01 } "
            "learning_rate { rate: 0.01 schedule: \"cosine\" "
            "decay_steps: 10 }"},
        Job{"one_worker", 1,
            "learning_rate { rate: 0.1 } optimizer { kind: \"adamw\" }"},
        Job{"thirty_three_workers", 33,
            "combination { rule: \"adasum_counted\" } "
            "learning_rate { rate: 0.05 }"}),
    [](const testing::TestParamInfo<Job>& info) { return info.param.name; });

}  // namespace
}  // namespace agg
