// What an operator would get of a restore or a resume, before it is done.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "tests/server/round/recovery_fixture.h"

namespace agg {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class DryRunTest : public RecoveryTest {
 protected:
  // Answered at once: nothing is waited for.
  static absl::StatusOr<RestoreResult> DryRun(LocalCluster* cluster,
                                              const std::string& what) {
    Reply<absl::StatusOr<RestoreResult>> reply;
    RestoreCall call = *Coordinator::ParseRestore(what);
    call.dry_run = true;
    cluster->coordinator()->Restore(call, reply.callback());
    EXPECT_TRUE(reply.called());
    return reply.Get();
  }
};

TEST_F(DryRunTest, ARestoreSaysWhatItWouldDoAndDoesNothing) {
  RunningJob job(WithCheckpoints(2, 1), SmallManifest(), 2);
  for (uint64_t version = 1; version <= 3; ++version) {
    RunTo(&job, version);
    job.cluster.AwaitCheckpoints(version);
  }
  const uint64_t epoch = job.cluster.Status().epoch;
  const absl::StatusOr<RestoreResult> foreseen = DryRun(&job.cluster, "2");
  ASSERT_TRUE(foreseen.ok()) << foreseen.status();
  EXPECT_THAT(foreseen->text,
              AllOf(HasSubstr("the job would go on from version 2 ("),
                    HasSubstr("it is at version 3, and what it has trained "
                              "since would be given up")));
  const absl::Status unseen = DryRun(&job.cluster, "7").status();
  EXPECT_TRUE(absl::IsNotFound(unseen)) << unseen;
  EXPECT_THAT(unseen.message(), HasSubstr("version 7"));
  const absl::StatusOr<RestoreResult> listed = DryRun(&job.cluster, "");
  ASSERT_TRUE(listed.ok()) << listed.status();
  std::vector<uint64_t> versions;
  for (const FoundCheckpoint& found : listed->found) {
    EXPECT_EQ(found.missing, "");
    versions.push_back(found.id.version);
  }
  EXPECT_EQ(versions, (std::vector<uint64_t>{3, 2, 1}));
  // Refused as the order itself is.
  EXPECT_THAT(DryRun(&job.cluster, "none").status().message(),
              HasSubstr("the job has parameters, which would be lost"));
  EXPECT_EQ(job.cluster.Status().epoch, epoch);
  EXPECT_EQ(job.cluster.Status().version, 3u);
  RunTo(&job, 4);
}

// Since the folders were listed.
TEST_F(DryRunTest, ACheckpointThatIsRemovedIsNotFound) {
  ClusterOptions options = WithCheckpoints(2, 1);
  options.coordinator.checkpoint.keep = 2;
  RunningJob job(options, SmallManifest(), 2);
  for (uint64_t version = 1; version <= 2; ++version) {
    RunTo(&job, version);
    job.cluster.AwaitCheckpoints(version);
  }
  job.cluster.RestartAll();
  EXPECT_TRUE(DryRun(&job.cluster, "1").ok());
  for (LocalWorker& worker : job.workers) {
    ASSERT_EQ(worker.Join(), absl::OkStatus());
  }
  for (uint64_t version = 3; version <= 4; ++version) {
    RunTo(&job, version);
    job.cluster.AwaitCheckpoints(version - 2);
  }
  EXPECT_TRUE(absl::IsNotFound(DryRun(&job.cluster, "1").status()));
  EXPECT_TRUE(absl::IsNotFound(DryRun(&job.cluster, "2").status()));
  EXPECT_TRUE(DryRun(&job.cluster, "3").ok());
  EXPECT_TRUE(DryRun(&job.cluster, "4").ok());
}

TEST_F(DryRunTest, BetweenTwoEpochsItSaysWhatIsInMemory) {
  RunningJob job(WithCheckpoints(2, 1), SmallManifest(), 2);
  RunTo(&job, 1);
  job.cluster.AwaitCheckpoints(1);
  job.cluster.peer(1)->ReportLost(absl::UnavailableError("gone"));
  EXPECT_THAT(DryRun(&job.cluster, "none")->text,
              HasSubstr("it was at version 1, and what shards still have of "
                        "that in memory would be lost"));
  EXPECT_THAT(DryRun(&job.cluster, "1")->text, HasSubstr("it is at version 1"));
}

TEST_F(DryRunTest, ACoordinatorThatStopsRefusesItAsItDoesTheOrder) {
  RunningJob job(WithCheckpoints(2, 1), SmallManifest(), 2);
  RunTo(&job, 1);
  job.cluster.AwaitCheckpoints(1);
  job.cluster.coordinator()->Drain(absl::Now());
  const absl::Status status = DryRun(&job.cluster, "1").status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST_F(DryRunTest, ACheckpointThatLacksAPartIsNamed) {
  {
    RunningJob job(WithCheckpoints(2, 1), SmallManifest(), 2);
    RunTo(&job, 1);
    job.cluster.AwaitCheckpoints(1);
  }
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(folder_)) {
    if (file.path().filename() != "part-00001-of-00002.npz") continue;
    std::filesystem::remove(file.path());
    break;
  }
  LocalCluster again(WithCheckpoints(2, 1));
  for (int i = 0; i < 4; ++i) again.Advance(absl::Seconds(1));
  const absl::Status refused = DryRun(&again, "1").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("version 1 ("), HasSubstr("part 1 of 2")));
  const absl::StatusOr<RestoreResult> anew = DryRun(&again, "none");
  ASSERT_TRUE(anew.ok()) << anew.status();
  EXPECT_THAT(anew->text, HasSubstr("the job would begin anew"));
  EXPECT_NE(again.Status().phase, JobPhase::kUnseeded);  // and did not
}

TEST_F(DryRunTest, AResumeSaysWhatItWouldDoAndDoesNothing) {
  RunningJob job(WithCheckpoints(2, 1), SmallManifest(), 2);
  Coordinator* const coordinator = job.cluster.coordinator();
  EXPECT_THAT(coordinator->MayResume().status().message(),
              HasSubstr("the job has not finished: it is at version 0"));
  RunTo(&job, 1);
  for (LocalWorker& worker : job.workers) {
    ASSERT_TRUE(worker.Leave().ok());
  }
  job.cluster.Settle();
  ASSERT_EQ(job.cluster.Status().phase, JobPhase::kFinished);
  const absl::StatusOr<ResumeResult> foreseen = coordinator->MayResume();
  ASSERT_TRUE(foreseen.ok()) << foreseen.status();
  EXPECT_EQ(foreseen->version, 1u);
  EXPECT_EQ(foreseen->ended, "the last worker has left");
  job.cluster.Settle();
  EXPECT_EQ(job.cluster.Status().phase, JobPhase::kFinished);
}

}  // namespace
}  // namespace agg
