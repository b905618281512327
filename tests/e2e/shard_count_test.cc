// The parameters have the same bits for any number of shards, through real
// servers and clients.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/e2e/loopback_job.h"
#include "tests/e2e/whole_job.h"

namespace agg {
namespace {

class ShardCount : public testing::TestWithParam<WholeJob> {};

TEST_P(ShardCount, DoesNotChangeABit) {
  const WholeJob& job = GetParam();
  const Manifest manifest =
      job.workers > 8 ? SmallManifest() : MixedManifest(700001);
  const JobResult expected = RunWholeJob(job, manifest, 1, FactoryBackends());
  for (int num_shards : {2, 3, 6}) {
    SCOPED_TRACE(absl::StrCat(num_shards, " shards"));
    ExpectSameResult(RunWholeJob(job, manifest, num_shards, FactoryBackends()),
                     expected);
  }
}

// Which worker seeds depends on who comes first; the result does not.
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

// 2,030 tensors were the most for 512 workers, when coefficients travelled in
// one message.
TEST(ManyTensors, HaveTheSameBitsOnTwoShards) {
  const WholeJob job = {"many", 3,
                        "max_workers: 512 combination { rule: \"adasum\" } "
                        "learning_rate { rate: 0.1 }"};
  const Manifest manifest =
      ShapedManifest(std::vector<std::vector<int64_t>>(2500, {2}));
  ExpectSameResult(RunWholeJob(job, manifest, 2, FactoryBackends()),
                   RunWholeJob(job, manifest, 1, FactoryBackends()));
}

INSTANTIATE_TEST_SUITE_P(Jobs, ShardCount, testing::ValuesIn(WholeJobs()),
                         NameOf);

}  // namespace
}  // namespace agg
