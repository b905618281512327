// Jobs whose processes are killed: they go on from what memory or disk has, and
// end with the bits of the job that nothing happened to.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/optimizer_step.h"
#include "server/combine/rule_table.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using testing::HasSubstr;

bool SameBits(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (size_t t = 0; t < a.size(); ++t) {
    if (a[t].size() != b[t].size()) return false;
    if (!a[t].empty() &&
        std::memcmp(a[t].data(), b[t].data(), a[t].size() * 4) != 0) {
      return false;
    }
  }
  return true;
}

// As RunningJob::RunRound has it.
uint64_t RowSeed(uint64_t round, int32_t rank) {
  return 1000 * (round + 1) + static_cast<uint64_t>(rank);
}

Manifest SmallManifest() { return MakeManifest({{7}, {}, {300}, {40}}); }

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

  // Each worker's gradient follows from the version and its rank. Ends at
  // version `last`.
  static void RunTo(RunningJob* job, uint64_t last) {
    for (;;) {
      const JobStatus status = job->cluster.coordinator()->Status();
      ASSERT_TRUE(status.seeded) << status.message;
      if (status.version >= last) return;
      job->RunRound(status.version);
      ASSERT_EQ(job->cluster.coordinator()->Status().version,
                status.version + 1);
    }
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

// --- Memory ------------------------------------------------------------------

TEST_F(RecoveryTest, ALostConnectionLosesNothing) {
  RunningJob job(Options(2), SmallManifest(), 2);
  RunTo(&job, 3);
  const uint64_t epoch = job.cluster.coordinator()->Status().epoch;
  const uint64_t made = job.workers[0].joined().epoch;
  // A row that has landed stays: its worker commits it again.
  ASSERT_EQ(job.workers[0].Push(3, RandomTensors(job.manifest, 8)),
            absl::OkStatus());
  job.cluster.LoseConnection(1);
  const JobStatus status = job.cluster.coordinator()->Status();
  EXPECT_GT(status.epoch, epoch);
  EXPECT_EQ(status.version, 3u);
  EXPECT_EQ(status.rewinds, 0u);
  EXPECT_EQ(status.workers.size(), 2u);
  const uint64_t session = job.workers[0].session();
  ResumeAll(&job, 3, made);
  EXPECT_EQ(job.workers[0].session(), session);
  EXPECT_FALSE(job.workers[0].joined().rewound);
  EXPECT_EQ(job.workers[0].joined().made, made);
  OutcomeReply first = job.workers[0].Commit(3);
  ASSERT_EQ(job.workers[1].Push(3, RandomTensors(job.manifest, 9)),
            absl::OkStatus());
  OutcomeReply second = job.workers[1].Commit(3);
  job.cluster.Settle();
  ASSERT_TRUE(first.Get().ok()) << first.Get().status();
  EXPECT_TRUE(first.Get()->included);
  EXPECT_EQ(second.Get()->version, 4u);
}

TEST_F(RecoveryTest, BitsAreThoseOfAJobWithoutLosses) {
  const Tensors expected = Undisturbed(2, 6);
  RunningJob job(Options(2), SmallManifest(), 2);
  for (const uint64_t version : {1, 2, 4}) {
    RunTo(&job, version);
    job.cluster.LoseConnection(1);
    ResumeAll(&job, version, 0);
  }
  ExpectEndsAs(&job, 6, expected);
}

// Both shards hold the next version; only one was asked to publish it.
TEST_F(RecoveryTest, APublicationThatWasCutIsFinished) {
  const Tensors expected = Undisturbed(2, 5);
  RunningJob job(Options(2), SmallManifest(), 2);
  RunTo(&job, 2);
  const uint64_t made = job.workers[0].joined().epoch;
  job.cluster.peer(1)->FailNext(PhaseKind::kPublish,
                                absl::UnavailableError("cut"));
  std::vector<OutcomeReply> replies;
  for (LocalWorker& worker : job.workers) {
    auto reply = worker.Contribute(
        2, RandomTensors(job.manifest, RowSeed(2, worker.rank())));
    ASSERT_TRUE(reply.ok()) << reply.status();
    replies.push_back(*reply);
  }
  for (int i = 0; i < 4; ++i) job.cluster.Advance(absl::Seconds(1));
  EXPECT_TRUE(absl::IsUnavailable(replies[0].Get().status()));
  EXPECT_EQ(job.cluster.coordinator()->Status().version, 3u);
  ResumeAll(&job, 2, made);
  EXPECT_FALSE(job.workers[0].joined().rewound);
  // The outcome is known, though it could not be told.
  OutcomeReply again = job.workers[0].Commit(2);
  job.cluster.Settle();
  ASSERT_TRUE(again.Get().ok()) << again.Get().status();
  EXPECT_TRUE(again.Get()->included);
  EXPECT_EQ(again.Get()->version, 3u);
}

TEST_F(RecoveryTest, WithoutCheckpointsAKilledShardAsksForANewSeed) {
  RunningJob job(Options(2), SmallManifest(), 2);
  RunTo(&job, 3);
  job.cluster.RestartShard(1);
  const JobStatus status = job.cluster.coordinator()->Status();
  EXPECT_FALSE(status.seeded);
  EXPECT_EQ(status.phase, JobPhase::kUnseeded);
  ASSERT_EQ(job.workers[0].Resume(3, 0), absl::OkStatus());
  EXPECT_FALSE(job.workers[0].joined().seeded);
  EXPECT_TRUE(job.workers[0].joined().seed_role);
}

// --- Checkpoints -------------------------------------------------------------

TEST_F(RecoveryTest, AKilledShardRewindsToTheNewestCheckpoint) {
  const Tensors expected = Undisturbed(2, 7);
  RunningJob job(WithCheckpoints(2, 2), SmallManifest(), 2);
  RunTo(&job, 4);
  job.cluster.AwaitCheckpoints(1);
  RunTo(&job, 5);
  const uint64_t made = job.workers[0].joined().epoch;
  job.cluster.AwaitCheckpoints(
      job.cluster.coordinator()->Status().checkpoint.num_sealed);
  const uint64_t newest =
      job.cluster.coordinator()->Status().checkpoint.version;
  job.cluster.RestartShard(1);
  const JobStatus status = job.cluster.coordinator()->Status();
  EXPECT_EQ(status.version, newest);
  EXPECT_EQ(status.rewinds, 1u);
  EXPECT_EQ(status.history, status.epoch);
  EXPECT_EQ(status.checkpoint.restored_version, newest);
  EXPECT_EQ(status.workers.size(), 2u);
  ResumeAll(&job, 5, made);
  EXPECT_TRUE(job.workers[0].joined().rewound);
  EXPECT_EQ(job.workers[0].joined().version, newest);
  ExpectEndsAs(&job, 7, expected);
}

TEST_F(RecoveryTest, AllProcessesKilledGoOnWithTheSameBits) {
  const Tensors expected = Undisturbed(2, 8);
  RunningJob job(WithCheckpoints(2, 1), SmallManifest(), 2);
  for (const uint64_t version : {1, 3, 6}) {
    RunTo(&job, version);
    job.cluster.AwaitCheckpoints(1);
    job.cluster.RestartAll();
    const JobStatus status = job.cluster.coordinator()->Status();
    ASSERT_TRUE(status.seeded) << status.message;
    EXPECT_GT(status.version, 0u);
    EXPECT_LE(status.version, version);
    EXPECT_EQ(status.workers.size(), 2u) << "members are restored";
    // New processes, which know no session.
    for (LocalWorker& worker : job.workers) {
      ASSERT_EQ(worker.Join(), absl::OkStatus());
      EXPECT_EQ(worker.joined().first_round, status.version);
    }
  }
  ExpectEndsAs(&job, 8, expected);
}

TEST_F(RecoveryTest, TheCoordinatorAloneKilled) {
  const Tensors expected = Undisturbed(2, 6);
  RunningJob job(WithCheckpoints(2, 1), SmallManifest(), 2);
  RunTo(&job, 3);
  job.cluster.AwaitCheckpoints(1);
  job.cluster.RestartCoordinator();
  ASSERT_TRUE(job.cluster.coordinator()->Status().seeded);
  ResumeAll(&job, 3, job.workers[0].joined().epoch);
  ExpectEndsAs(&job, 6, expected);
}

TEST_F(RecoveryTest, AnotherNumberOfShardsHasTheSameBits) {
  const Tensors expected = Undisturbed(1, 6);
  {
    RunningJob job(WithCheckpoints(4, 1), SmallManifest(), 2);
    RunTo(&job, 3);
    job.cluster.AwaitCheckpoints(1);
  }
  for (const int num_shards : {1, 3, 7}) {
    LocalCluster cluster(WithCheckpoints(num_shards, 0));
    const JobStatus status = cluster.coordinator()->Status();
    ASSERT_TRUE(status.seeded) << status.message;
    std::vector<LocalWorker> workers;
    for (int rank = 0; rank < 2; ++rank) {
      workers.emplace_back(&cluster, rank, SmallManifest());
      ASSERT_EQ(workers.back().Join(), absl::OkStatus());
    }
    for (uint64_t round = status.version; round < 6; ++round) {
      for (LocalWorker& worker : workers) {
        ASSERT_TRUE(
            worker
                .Contribute(round, RandomTensors(SmallManifest(),
                                                 RowSeed(round, worker.rank())))
                .ok());
      }
      cluster.Settle();
    }
    const absl::StatusOr<Tensors> got = cluster.Pull(6);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_TRUE(SameBits(*got, expected)) << num_shards << " shards";
  }
}

// --- Second copies -----------------------------------------------------------

class BuddyTest : public RecoveryTest {
 protected:
  ClusterOptions Replicated(int num_shards) const {
    ClusterOptions options = Options(num_shards);
    options.coordinator.replicated = true;
    options.shard.replicated = true;
    return options;
  }
};

TEST_F(BuddyTest, RoundsHaveTheBitsOfAJobWithoutCopies) {
  const Tensors expected = Undisturbed(2, 4);
  for (const int num_shards : {2, 3, 4}) {
    RunningJob job(Replicated(num_shards), SmallManifest(), 2);
    EXPECT_TRUE(job.cluster.coordinator()->Status().replicated);
    ExpectEndsAs(&job, 4, expected);
  }
}

TEST_F(BuddyTest, AKilledShardChangesNothing) {
  const Tensors expected = Undisturbed(3, 8);
  RunningJob job(Replicated(3), SmallManifest(), 2);
  uint64_t version = 1;
  for (const int shard : {1, 2, 1, 2}) {
    RunTo(&job, version);
    const uint64_t made = job.cluster.coordinator()->Status().epoch;
    job.cluster.RestartShard(shard);
    const JobStatus status = job.cluster.coordinator()->Status();
    ASSERT_EQ(status.version, version) << status.message;
    EXPECT_EQ(status.rewinds, 0u);
    ResumeAll(&job, version, made);
    EXPECT_FALSE(job.workers[0].joined().rewound);
    ++version;
  }
  ExpectEndsAs(&job, 8, expected);
}

TEST_F(BuddyTest, AKilledCoordinatorChangesNothing) {
  const Tensors expected = Undisturbed(2, 6);
  for (const int num_shards : {2, 4}) {
    RunningJob job(Replicated(num_shards), SmallManifest(), 2);
    for (const uint64_t version : {1, 3}) {
      RunTo(&job, version);
      const uint64_t made = job.cluster.coordinator()->Status().epoch;
      const uint64_t session = job.workers[0].session();
      job.cluster.RestartCoordinator();
      const JobStatus status = job.cluster.coordinator()->Status();
      ASSERT_EQ(status.version, version) << status.message;
      EXPECT_EQ(status.workers.size(), 2u);
      ResumeAll(&job, version, made);
      EXPECT_EQ(job.workers[0].session(), session);
      EXPECT_FALSE(job.workers[0].joined().rewound);
    }
    ExpectEndsAs(&job, 6, expected);
  }
}

TEST_F(BuddyTest, TwoNeighboursAtOnceAreTooMany) {
  RunningJob job(Replicated(2), SmallManifest(), 2);
  RunTo(&job, 2);
  job.cluster.RestartAll();
  EXPECT_FALSE(job.cluster.coordinator()->Status().seeded);
}

TEST_F(BuddyTest, WithCheckpointsEvenThatRewindsExactly) {
  const Tensors expected = Undisturbed(2, 6);
  ClusterOptions options = WithCheckpoints(2, 1);
  options.coordinator.replicated = true;
  options.shard.replicated = true;
  RunningJob job(options, SmallManifest(), 2);
  RunTo(&job, 3);
  job.cluster.AwaitCheckpoints(1);
  job.cluster.RestartAll();
  ASSERT_TRUE(job.cluster.coordinator()->Status().seeded);
  for (LocalWorker& worker : job.workers) {
    ASSERT_EQ(worker.Join(), absl::OkStatus());
  }
  ExpectEndsAs(&job, 6, expected);
}

// --- Damage ------------------------------------------------------------------

std::vector<std::filesystem::path> Folders(const std::string& path) {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

TEST_F(RecoveryTest, ADamagedPartIsNamedAndTheOneBeforeIsTaken) {
  RunningJob job(WithCheckpoints(2, 1), SmallManifest(), 2);
  RunTo(&job, 1);
  job.cluster.AwaitCheckpoints(1);
  RunTo(&job, 2);
  job.cluster.AwaitCheckpoints(2);
  job.cluster.StopCoordinator();
  const auto folders = Folders(folder_ + "/default");
  ASSERT_GE(folders.size(), 2u);
  const auto part = folders.back() / "part-00001-of-00002.npz";
  std::filesystem::resize_file(part, std::filesystem::file_size(part) - 1);
  LocalCluster again(WithCheckpoints(2, 1));
  for (int i = 0; i < 3; ++i) again.Advance(absl::Seconds(1));
  const JobStatus status = again.coordinator()->Status();
  ASSERT_TRUE(status.seeded) << status.message;
  EXPECT_EQ(status.version, 1u);
}

TEST_F(RecoveryTest, AJobOfAnotherOptimizerIsRefusedByName) {
  {
    RunningJob job(WithCheckpoints(2, 1), SmallManifest(), 2);
    RunTo(&job, 1);
    job.cluster.AwaitCheckpoints(1);
  }
  ClusterOptions options = WithCheckpoints(2, 1);
  SetOptimizer(OptimizerOptions(), &options);
  LocalCluster cluster(options);
  for (int i = 0; i < 3; ++i) cluster.Advance(absl::Seconds(1));
  const JobStatus status = cluster.coordinator()->Status();
  EXPECT_FALSE(status.seeded);
  EXPECT_THAT(status.message, HasSubstr("optimizer is \"adam\""));
}

TEST_F(RecoveryTest, RestoreNoneWaitsForASeed) {
  {
    RunningJob job(WithCheckpoints(2, 1), SmallManifest(), 2);
    RunTo(&job, 1);
    job.cluster.AwaitCheckpoints(1);
  }
  ClusterOptions options = WithCheckpoints(2, 1);
  options.coordinator.checkpoint.restore = false;
  LocalCluster cluster(options);
  EXPECT_EQ(cluster.coordinator()->Status().phase, JobPhase::kUnseeded);
}

TEST_F(RecoveryTest, AFullDiskFailsTheCheckpointAndNoRound) {
  RunningJob job(WithCheckpoints(2, 1), SmallManifest(), 2);
  RunTo(&job, 1);
  job.cluster.AwaitCheckpoints(1);
  // What stands in the way of a folder cannot be written into.
  std::filesystem::remove_all(folder_);
  std::ofstream(folder_) << "no folder";
  RunTo(&job, 3);
  job.cluster.AwaitCheckpoints(2);
  const CheckpointStatus status =
      job.cluster.coordinator()->Status().checkpoint;
  EXPECT_GE(status.num_failed, 1u);
  EXPECT_THAT(status.last_error, HasSubstr(folder_));
  RunTo(&job, 5);
}

TEST_F(RecoveryTest, AFinishedJobStaysFinishedAndCanBePulled) {
  ClusterOptions options = WithCheckpoints(2, 0);
  options.coordinator.max_rounds = 3;
  RunningJob job(options, SmallManifest(), 2);
  RunTo(&job, 3);
  ASSERT_TRUE(job.cluster.coordinator()->finished());
  const Tensors last = *job.cluster.Pull(3);
  job.cluster.AwaitCheckpoints(1);
  job.cluster.RestartAll();
  const JobStatus status = job.cluster.coordinator()->Status();
  EXPECT_EQ(status.phase, JobPhase::kFinished) << status.message;
  EXPECT_TRUE(SameBits(*job.cluster.Pull(3), last));
  // A higher limit lets it go on.
  options.coordinator.max_rounds = 5;
  LocalCluster longer(options);
  EXPECT_EQ(longer.coordinator()->Status().phase, JobPhase::kOpen);
}

TEST_F(RecoveryTest, ARuleThatWasSetHoldsAfterwards) {
  RunningJob job(WithCheckpoints(2, 1), SmallManifest(), 2);
  RunTo(&job, 1);
  RuleChange change;
  change.rule = "mean";
  change.learning_rate = 0.125;
  ASSERT_TRUE(job.cluster.coordinator()->SetRule(change, nullptr).ok());
  RunTo(&job, 3);
  job.cluster.AwaitCheckpoints(1);
  RunTo(&job, 4);
  job.cluster.AwaitCheckpoints(
      job.cluster.coordinator()->Status().checkpoint.num_sealed);
  job.cluster.RestartAll();
  const JobStatus status = job.cluster.coordinator()->Status();
  ASSERT_TRUE(status.seeded) << status.message;
  EXPECT_EQ(status.combination.rule, "mean");
}

TEST_F(RecoveryTest, OneIsTakenWhenAnOperatorAsks) {
  RunningJob job(WithCheckpoints(2, 0), SmallManifest(), 2);
  RunTo(&job, 2);
  Reply<absl::StatusOr<TakenCheckpoint>> reply;
  job.cluster.coordinator()->TakeCheckpoint(reply.callback());
  job.cluster.AwaitCheckpoints(1);
  ASSERT_TRUE(reply.called());
  ASSERT_TRUE(reply.Get().ok()) << reply.Get().status();
  EXPECT_EQ(reply.Get()->version, 2u);
  EXPECT_GT(reply.Get()->num_bytes, 3 * 4 * 347);
}

// Whatever the clock says: another coordinator's clock was ahead by a year.
TEST_F(RecoveryTest, AClockThatJumpsBackHoldsNothingUp) {
  RunningJob job(WithCheckpoints(2, 1), SmallManifest(), 2);
  RunTo(&job, 2);
  job.cluster.AwaitCheckpoints(1);
  job.cluster.clock()->Advance(-absl::Hours(9000));
  job.cluster.RestartCoordinator();
  for (int i = 0; i < 3; ++i) job.cluster.Advance(absl::Seconds(1));
  const JobStatus status = job.cluster.coordinator()->Status();
  EXPECT_TRUE(status.seeded) << status.message;
}

}  // namespace
}  // namespace agg
