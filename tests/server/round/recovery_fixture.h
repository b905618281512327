// Jobs whose processes are killed, and what they have to end with.
#ifndef AGG_TESTS_SERVER_ROUND_RECOVERY_FIXTURE_H_
#define AGG_TESTS_SERVER_ROUND_RECOVERY_FIXTURE_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/optimizer_step.h"
#include "server/combine/rule_table.h"
#include "tests/server/round/local_cluster.h"

namespace agg {

// The seed that RunningJob::RunRound takes.
inline uint64_t RowSeed(uint64_t round, int32_t rank) {
  return 1000 * (round + 1) + static_cast<uint64_t>(rank);
}

inline Manifest SmallManifest() { return MakeManifest({{7}, {}, {300}, {40}}); }

// Each worker's gradient follows from the version and its rank. Ends at
// version `last`.
inline void RunTo(RunningJob* job, uint64_t last) {
  for (;;) {
    const JobStatus status = job->cluster.Status();
    ASSERT_TRUE(status.seeded) << status.message;
    if (status.version >= last) return;
    job->RunRound(status.version);
    ASSERT_EQ(job->cluster.Status().version, status.version + 1);
  }
}

// Ranks 0 and 1.
inline std::vector<LocalWorker> JoinTwo(LocalCluster* cluster) {
  std::vector<LocalWorker> workers;
  for (int rank : {0, 1}) {
    workers.push_back(Joined(cluster, rank, SmallManifest()));
  }
  return workers;
}

// Rows as RunningJob::RunRound has them; the caller settles.
inline std::vector<OutcomeReply> ContributeAll(
    std::vector<LocalWorker>* workers, uint64_t round) {
  std::vector<OutcomeReply> replies;
  for (LocalWorker& worker : *workers) {
    const auto reply = worker.Contribute(
        round, RandomTensors(SmallManifest(), RowSeed(round, worker.rank())));
    EXPECT_TRUE(reply.ok()) << reply.status();
    replies.push_back(reply.value_or(OutcomeReply()));
  }
  return replies;
}

// A job of two workers that has come to `version`, and so many checkpoints.
struct TrainedJob : RunningJob {
  TrainedJob(const ClusterOptions& options, uint64_t version,
             uint64_t num_checkpoints = 0)
      : RunningJob(options, SmallManifest(), 2) {
    RunTo(this, version);
    if (num_checkpoints > 0) cluster.AwaitCheckpoints(num_checkpoints);
  }
};

// A folder of the test's own, which is removed afterwards.
class RecoveryTest : public testing::Test {
 protected:
  RecoveryTest()
      : folder_(absl::StrCat(
            testing::TempDir(), "/recovery_",
            testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~RecoveryTest() override { std::filesystem::remove_all(folder_); }

  // Three workers, adam, and a rule and a step scale that remember.
  ClusterOptions Options(int num_shards) const {
    ClusterOptions options = MakeClusterOptions(num_shards, 2, "adacons");
    OptimizerOptions adam;
    adam.kind = OptimizerKind::kAdam;
    SetOptimizer(adam, &options);
    options.coordinator.combine.shadow_rules.emplace_back();
    options.coordinator.combine.shadow_rules[0].rule = FindRule("adasum");
    return options;
  }
  ClusterOptions WithCheckpoints(int num_shards, uint64_t every_rounds) const {
    ClusterOptions options = Options(num_shards);
    options.checkpoint_path = folder_;
    options.coordinator.checkpoint.enabled = true;
    options.coordinator.checkpoint.every_rounds = every_rounds;
    return options;
  }

  static void ResumeAll(RunningJob* job, uint64_t version, uint64_t made) {
    for (LocalWorker& worker : job->workers) {
      ASSERT_EQ(worker.Resume(version, made), absl::OkStatus());
    }
  }
  Tensors Undisturbed(int num_shards, uint64_t last) const {
    RunningJob job(Options(num_shards), SmallManifest(), 2);
    RunTo(&job, last);
    return *job.cluster.Pull(last);
  }
  static void ExpectEndsAs(RunningJob* job, uint64_t last,
                           const Tensors& expected) {
    RunTo(job, last);
    const absl::StatusOr<Tensors> got = job->cluster.Pull(last);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_TRUE(SameBits(*got, expected));
  }

  const std::string folder_;
};

}  // namespace agg

#endif  // AGG_TESTS_SERVER_ROUND_RECOVERY_FIXTURE_H_
