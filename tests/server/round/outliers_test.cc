// An outlier in a whole job: all shards leave its row out, and everybody hears
// of it.
#include "server/combine/outliers.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kWrong = 2;

ClusterOptions Options(int num_shards, OutlierAction action) {
  ClusterOptions options = MakeClusterOptions(num_shards, 5);
  options.coordinator.combine.outliers = {6.0, action};
  return options;
}

// These ranks contribute ones, the wrong one 300s.
std::vector<OutcomeReply> Contribute(const std::vector<int>& ranks,
                                     RunningJob* job) {
  std::vector<OutcomeReply> replies;
  for (const int rank : ranks) {
    const float value = rank == kWrong ? 300.0f : 1.0f;
    LocalWorker& worker = job->workers[static_cast<size_t>(rank)];
    EXPECT_EQ(worker.Push(0, FilledTensors(job->manifest, value)),
              absl::OkStatus());
    replies.push_back(worker.Commit(0));
  }
  job->cluster.Settle();
  return replies;
}

Manifest TwoTensors() { return MakeManifest({{700}, {5}}); }

TEST(OutliersTest, AreLeftOutOnAllShardsByName) {
  for (const int num_shards : {1, 2, 3}) {
    RunningJob job(Options(num_shards, OutlierAction::kExclude), TwoTensors(),
                   5);
    const Tensors start = *job.cluster.Pull(0);
    const auto replies = Contribute({0, 1, 2, 3, 4}, &job);
    for (size_t rank = 0; rank < replies.size(); ++rank) {
      const RoundResult outcome = *replies[rank].Get();
      EXPECT_EQ(outcome.included, rank != kWrong);
      EXPECT_THAT(outcome.ranks, ElementsAre(0, 1, 3, 4));
      EXPECT_THAT(outcome.excluded_ranks, ElementsAre(kWrong));
      EXPECT_THAT(outcome.message,
                  HasSubstr("excluded as outliers: rank 2 (norm "));
    }
    // sgd at a rate of 0.5, over the mean of the others.
    const Tensors end = *job.cluster.Pull(1);
    EXPECT_FLOAT_EQ(end[0][699], start[0][699] - 0.5f);
    EXPECT_FLOAT_EQ(end[1][4], start[1][4] - 0.5f);
  }
}

TEST(OutliersTest, AWarningLetsThemCount) {
  RunningJob job(Options(2, OutlierAction::kWarn), TwoTensors(), 5);
  const Tensors start = *job.cluster.Pull(0);
  const auto replies = Contribute({0, 1, 2, 3, 4}, &job);
  const RoundResult outcome = *replies[kWrong].Get();
  EXPECT_TRUE(outcome.included);
  EXPECT_THAT(outcome.excluded_ranks, IsEmpty());
  EXPECT_THAT(outcome.message, HasSubstr("outliers, which count: rank 2"));
  EXPECT_FLOAT_EQ((*job.cluster.Pull(1))[1][4],
                  start[1][4] - 0.5f * (4 * 1 + 300) / 5);
}

// A quorum counts commits, whatever becomes of them: the round does not wait
// for another row in the outlier's place.
TEST(OutliersTest, AQuorumCountsThem) {
  ClusterOptions options = Options(2, OutlierAction::kExclude);
  options.coordinator.quorum = 4;
  RunningJob job(options, TwoTensors(), 5);
  const auto replies = Contribute({0, 1, 2, 3}, &job);
  ASSERT_EQ(replies[0].num_calls(), 1);
  EXPECT_THAT(replies[0].Get()->ranks, ElementsAre(0, 1, 3));
  EXPECT_THAT(replies[0].Get()->excluded_ranks, ElementsAre(kWrong));
}

TEST(OutliersTest, TooFewRowsAreSaid) {
  ClusterOptions options = Options(2, OutlierAction::kExclude);
  options.coordinator.quorum = 3;
  RunningJob job(options, TwoTensors(), 5);
  const auto replies = Contribute({0, 1, 2}, &job);
  EXPECT_THAT(replies[0].Get()->ranks, ElementsAre(0, 1, 2));
  EXPECT_THAT(replies[0].Get()->message,
              HasSubstr("outliers were not looked for"));
}

}  // namespace
}  // namespace agg
