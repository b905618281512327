// Jobs go on from what memory and disk have, and end with the bits of the job
// that nothing happened to.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "tests/server/round/recovery_fixture.h"

namespace agg {
namespace {

// --- Memory ------------------------------------------------------------------

TEST_F(RecoveryTest, ALostConnectionLosesNothing) {
  TrainedJob job(Options(2), 3);
  const uint64_t epoch = job.cluster.Status().epoch;
  const uint64_t made = job.workers[0].joined().epoch;
  // A row that has landed stays: its worker commits it again.
  ASSERT_EQ(job.workers[0].Push(3, RandomTensors(job.manifest, 8)),
            absl::OkStatus());
  job.cluster.LoseConnection(1);
  const JobStatus status = job.cluster.Status();
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

// The coordinator went before it could keep that the job has finished: the next
// one, for which it goes on, is not held up by a shard that was told so.
TEST_F(RecoveryTest, AShardHasFinishedForAnEpochAlone) {
  TrainedJob job(Options(2), 2);
  SessionChange end;
  end.finished = true;
  end.remove = true;
  ASSERT_EQ(job.cluster.engine(1)->SetSession(job.cluster.Status().epoch, end),
            absl::OkStatus());
  job.cluster.LoseConnection(1);
  ResumeAll(&job, 2, 0);
  RunTo(&job, 3);
}

// Its worker has gone, and nobody brings the commit again: the open round is
// the next worker's.
TEST_F(RecoveryTest, TheNextWorkerHasTheRoundOfAForgottenCommit) {
  for (const bool replicated : {false, true}) {
    ClusterOptions options = Options(2);
    options.coordinator.replicated = replicated;
    options.shard.replicated = replicated;
    options.coordinator.floor_policy = FloorPolicy::kWarn;
    TrainedJob job(options, 2);
    auto forgotten = job.workers[1].Contribute(
        2, RandomTensors(job.manifest, RowSeed(2, 1)));
    ASSERT_TRUE(forgotten.ok()) << forgotten.status();
    ASSERT_EQ(job.workers[1].Leave(), absl::OkStatus());
    ASSERT_EQ(job.cluster.Status().version, 2u);
    job.cluster.LoseConnection(1);
    job.cluster.Advance(absl::Minutes(10));  // the other one does not come back
    ASSERT_TRUE(job.cluster.Status().workers.empty());
    LocalWorker next = Joined(&job.cluster, 1, job.manifest);
    ASSERT_EQ(next.joined().first_round, 2u);
    auto reply = next.Contribute(2, RandomTensors(job.manifest, RowSeed(2, 7)));
    ASSERT_TRUE(reply.ok()) << reply.status();
    job.cluster.Settle();
    ASSERT_TRUE(reply->Get().ok()) << reply->Get().status();
    EXPECT_TRUE(reply->Get()->included);
    EXPECT_EQ(reply->Get()->version, 3u);
  }
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

// Both shards have prepared the next version; only one was asked to publish it.
TEST_F(RecoveryTest, APublicationThatWasCutIsFinished) {
  ClusterOptions options = Options(2);
  options.coordinator.replicated = true;
  options.shard.replicated = true;
  RunningJob job(options, SmallManifest(), 2);
  RunTo(&job, 2);
  const uint64_t made = job.workers[0].joined().epoch;
  job.cluster.peer(1)->FailNext(PhaseKind::kPublish,
                                absl::UnavailableError("cut"));
  const std::vector<OutcomeReply> replies = ContributeAll(&job.workers, 2);
  for (int i = 0; i < 4; ++i) job.cluster.Advance(absl::Seconds(1));
  EXPECT_TRUE(absl::IsUnavailable(replies[0].Get().status()));
  EXPECT_EQ(job.cluster.Status().version, 3u);
  ResumeAll(&job, 2, made);
  EXPECT_FALSE(job.workers[0].joined().rewound);
  // The outcome is known, though it could not be told.
  OutcomeReply again = job.workers[0].Commit(2);
  job.cluster.Settle();
  ASSERT_TRUE(again.Get().ok()) << again.Get().status();
  EXPECT_TRUE(again.Get()->included);
  EXPECT_EQ(again.Get()->version, 3u);
}

// All shards have published, and the connection to one breaks before the
// coordinator says so.
TEST_F(RecoveryTest, AVersionThatAllPublishedOutlivesItsEpoch) {
  const Tensors expected = Undisturbed(2, 5);
  TrainedJob job(Options(2), 2);
  const uint64_t made = job.workers[0].joined().epoch;
  job.cluster.peer(1)->BeforePhase([&](const Phase& phase) {
    if (phase.kind != PhaseKind::kUpdate) return;
    job.cluster.peer(1)->ReportLost(absl::UnavailableError("cut"));
  });
  job.RunRound(2);
  job.cluster.peer(1)->BeforePhase(nullptr);
  for (int i = 0; i < 4; ++i) job.cluster.Advance(absl::Seconds(1));
  const JobStatus status = job.cluster.Status();
  ASSERT_EQ(status.phase, JobPhase::kOpen) << status.message;
  EXPECT_EQ(status.version, 3u);
  EXPECT_EQ(status.rewinds, 0u);
  EXPECT_EQ(job.cluster.reports().size(), 3u);
  ResumeAll(&job, 2, made);
  EXPECT_FALSE(job.workers[0].joined().rewound);
  OutcomeReply again = job.workers[0].Commit(2);
  job.cluster.Settle();
  ASSERT_TRUE(again.Get().ok()) << again.Get().status();
  EXPECT_TRUE(again.Get()->included);
  ExpectEndsAs(&job, 5, expected);
}

// The epoch ends before the shards hear that the worker is out.
TEST_F(RecoveryTest, AnEvictionOutlivesItsEpoch) {
  TrainedJob job(Options(2), 2);
  for (int shard = 0; shard < 2; ++shard) {
    job.cluster.peer(shard)->FailNextSession(absl::UnavailableError("cut"));
  }
  job.cluster.coordinator()->Evict(1, "stalled",
                                   [](const absl::StatusOr<Eviction>&) {});
  job.cluster.Settle();
  for (int i = 0; i < 4; ++i) job.cluster.Advance(absl::Seconds(1));
  const JobStatus status = job.cluster.Status();
  ASSERT_EQ(status.phase, JobPhase::kOpen) << status.message;
  ASSERT_EQ(status.workers.size(), 1u);
  EXPECT_EQ(status.workers[0].rank, 0);
  EXPECT_TRUE(absl::IsAborted(job.workers[1].Resume(2, 0)));
  // The shards refuse it, too.
  EXPECT_TRUE(
      absl::IsAborted(job.workers[1].Push(2, RandomTensors(job.manifest, 8))));
}

TEST_F(RecoveryTest, WithoutCheckpointsAKilledShardAsksForANewSeed) {
  TrainedJob job(Options(2), 3);
  job.cluster.RestartShard(1);
  const JobStatus status = job.cluster.Status();
  EXPECT_FALSE(status.seeded);
  EXPECT_EQ(status.phase, JobPhase::kUnseeded);
  ASSERT_EQ(job.workers[0].Resume(3, 0), absl::OkStatus());
  EXPECT_FALSE(job.workers[0].joined().seeded);
  EXPECT_TRUE(job.workers[0].joined().seed_role);
}

// --- Checkpoints -------------------------------------------------------------

TEST_F(RecoveryTest, AKilledShardRewindsToTheNewestCheckpoint) {
  const Tensors expected = Undisturbed(2, 7);
  TrainedJob job(WithCheckpoints(2, 2), 4, 1);
  RunTo(&job, 5);
  const uint64_t made = job.workers[0].joined().epoch;
  job.cluster.AwaitCheckpoints(job.cluster.Status().checkpoint.num_sealed);
  const uint64_t newest = job.cluster.Status().checkpoint.version;
  job.cluster.RestartShard(1);
  const JobStatus status = job.cluster.Status();
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
    const JobStatus status = job.cluster.Status();
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
  TrainedJob job(WithCheckpoints(2, 1), 3, 1);
  job.cluster.RestartCoordinator();
  ASSERT_TRUE(job.cluster.Status().seeded);
  ResumeAll(&job, 3, job.workers[0].joined().epoch);
  ExpectEndsAs(&job, 6, expected);
}

// All shards have forgotten the sessions; the coordinator lives.
TEST_F(RecoveryTest, WorkersComeBackToACoordinatorWhoseShardsForgotThem) {
  const Tensors expected = Undisturbed(1, 6);
  TrainedJob job(WithCheckpoints(1, 1), 3, 1);
  const uint64_t made = job.workers[0].joined().epoch;
  const uint64_t session = job.workers[0].session();
  job.cluster.RestartShard(0);
  const JobStatus status = job.cluster.Status();
  ASSERT_TRUE(status.seeded) << status.message;
  EXPECT_EQ(status.rewinds, 1u);
  EXPECT_EQ(status.workers.size(), 0u);
  ResumeAll(&job, 3, made);
  EXPECT_EQ(job.workers[0].session(), session);
  EXPECT_TRUE(job.workers[0].joined().rewound);
  EXPECT_EQ(job.workers[1].joined().first_round, status.version);
  ExpectEndsAs(&job, 6, expected);
}

// The checkpoint names workers that have gone since, and shard 1 knows it.
TEST_F(RecoveryTest, WhoHasGoneSinceTheCheckpointIsNotWaitedFor) {
  TrainedJob job(WithCheckpoints(2, 1), 2, 1);
  for (int32_t rank = 0; rank < 2; ++rank) {
    job.cluster.coordinator()->Evict(rank, "stalled",
                                     [](const absl::StatusOr<Eviction>&) {});
  }
  job.cluster.Settle();
  job.cluster.RestartCoordinator();
  const JobStatus status = job.cluster.Status();
  ASSERT_TRUE(status.seeded) << status.message;
  EXPECT_EQ(status.workers.size(), 0u);
}

// A disk that hangs under a shard that answers pings (P31).
TEST_F(RecoveryTest, AManifestThatIsNotReadInTimeEndsTheAttempt) {
  TrainedJob job(WithCheckpoints(1, 1), 2, 1);
  int num_reads = 0;
  job.cluster.peer(0)->BeforePhase([&](const Phase& phase) {
    if (phase.kind != PhaseKind::kReadManifest || num_reads++ > 0) return;
    job.cluster.clock()->Advance(absl::Minutes(10));
    job.cluster.coordinator()->CheckDeadlines();
  });
  job.cluster.RestartAll();
  for (int i = 0; i < 4; ++i) job.cluster.Advance(absl::Seconds(1));
  const JobStatus status = job.cluster.Status();
  EXPECT_EQ(num_reads, 2);
  EXPECT_EQ(status.phase_timeouts.at(0), 1u);
  EXPECT_TRUE(status.seeded) << status.message;
}

TEST_F(RecoveryTest, AnotherNumberOfShardsHasTheSameBits) {
  const Tensors expected = Undisturbed(1, 6);
  { TrainedJob job(WithCheckpoints(4, 1), 3, 1); }
  for (const int num_shards : {1, 3, 7}) {
    LocalCluster cluster(WithCheckpoints(num_shards, 0));
    const JobStatus status = cluster.Status();
    ASSERT_TRUE(status.seeded) << status.message;
    std::vector<LocalWorker> workers = JoinTwo(&cluster);
    for (uint64_t round = status.version; round < 6; ++round) {
      ContributeAll(&workers, round);
      cluster.Settle();
    }
    const absl::StatusOr<Tensors> got = cluster.Pull(6);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_TRUE(SameBits(*got, expected)) << num_shards << " shards";
  }
}

// Checkpoints that are damaged, do not fit, or cannot be written, and what is
// restored besides arrays.

using testing::AllOf;
using testing::HasSubstr;

std::vector<std::filesystem::path> Folders(const std::string& path) {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

// It is waited for, since the one before would throw a round away: that is a
// person's word.
TEST_F(RecoveryTest, ADamagedPartIsNamedAndWaitedFor) {
  {
    TrainedJob job(WithCheckpoints(2, 1), 1, 1);
    RunTo(&job, 2);
    job.cluster.AwaitCheckpoints(2);
  }
  const auto folders = Folders(folder_ + "/default");
  ASSERT_GE(folders.size(), 2u);
  const auto part = folders.back() / "part-00001-of-00002.npz";
  const auto length = std::filesystem::file_size(part);
  std::string bytes;
  {
    std::ifstream in(part, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  for (const bool cut : {true, false}) {
    std::string damaged = bytes;
    if (cut) {
      damaged.pop_back();
    } else {
      damaged[length / 2] ^= 1;
    }
    std::ofstream(part, std::ios::binary) << damaged;
    LocalCluster again(WithCheckpoints(2, 1));
    for (int i = 0; i < 3; ++i) again.Advance(absl::Seconds(1));
    JobStatus status = again.Status();
    EXPECT_FALSE(status.seeded);
    EXPECT_THAT(status.message,
                AllOf(HasSubstr("the job waits"),
                      HasSubstr("part-00001-of-00002.npz is damaged"),
                      HasSubstr("aggctl restore " +
                                folders.front().filename().string())));
    EXPECT_EQ(Folders(folder_ + "/default"), folders);
    // Put back.
    std::ofstream(part, std::ios::binary) << bytes;
    for (int i = 0; i < 20; ++i) again.Advance(absl::Seconds(1));
    status = again.Status();
    EXPECT_TRUE(status.seeded) << status.message;
    EXPECT_EQ(status.version, 2u);
  }
}

// What is not taken stays: whoever said so may have been mistaken.
TEST_F(RecoveryTest, GoingOnFromACheckpointRemovesNone) {
  {
    TrainedJob job(WithCheckpoints(2, 1), 1, 1);
    RunTo(&job, 2);
    job.cluster.AwaitCheckpoints(2);
  }
  const auto folders = Folders(folder_ + "/default");
  ClusterOptions options = WithCheckpoints(2, 1);
  options.coordinator.checkpoint.keep = 1;
  // Twice, since the second life needs what the first one went on from.
  for (int life = 0; life < 2; ++life) {
    LocalCluster again(options);
    for (int i = 0; i < 3; ++i) again.Advance(absl::Seconds(1));
    const JobStatus status = again.Status();
    ASSERT_TRUE(status.seeded) << status.message;
    EXPECT_EQ(status.version, 2u);
    EXPECT_EQ(Folders(folder_ + "/default"), folders);
  }
}

TEST_F(RecoveryTest, AJobOfAnotherOptimizerIsRefusedByName) {
  { TrainedJob job(WithCheckpoints(2, 1), 1, 1); }
  ClusterOptions options = WithCheckpoints(2, 1);
  SetOptimizer(OptimizerOptions(), &options);
  LocalCluster cluster(options);
  for (int i = 0; i < 3; ++i) cluster.Advance(absl::Seconds(1));
  const JobStatus status = cluster.Status();
  EXPECT_FALSE(status.seeded);
  EXPECT_THAT(status.message, HasSubstr("optimizer is \"adam\""));
}

TEST_F(RecoveryTest, AFullDiskFailsTheCheckpointAndNoRound) {
  TrainedJob job(WithCheckpoints(2, 1), 1, 1);
  // What stands in the way of a folder cannot be written into.
  std::filesystem::remove_all(folder_);
  std::ofstream(folder_) << "no folder";
  // One more alone: the next may fail since a shard still writes this one.
  RunTo(&job, 2);
  job.cluster.AwaitCheckpoints(2);
  const CheckpointStatus status = job.cluster.Status().checkpoint;
  EXPECT_GE(status.num_failed, 1u);
  EXPECT_THAT(status.last_error, HasSubstr(folder_));
  RunTo(&job, 5);
}

TEST_F(RecoveryTest, AFinishedJobStaysFinishedAndCanBePulled) {
  ClusterOptions options = WithCheckpoints(2, 0);
  options.coordinator.max_rounds = 3;
  TrainedJob job(options, 3);
  ASSERT_TRUE(job.cluster.coordinator()->finished());
  const Tensors last = *job.cluster.Pull(3);
  job.cluster.AwaitCheckpoints(1);
  job.cluster.RestartAll();
  const JobStatus status = job.cluster.Status();
  EXPECT_EQ(status.phase, JobPhase::kFinished) << status.message;
  EXPECT_TRUE(SameBits(*job.cluster.Pull(3), last));
  // A higher limit lets it go on.
  options.coordinator.max_rounds = 5;
  LocalCluster longer(options);
  EXPECT_EQ(longer.Status().phase, JobPhase::kOpen);
}

TEST_F(RecoveryTest, ARuleThatWasSetHoldsAfterwards) {
  TrainedJob job(WithCheckpoints(2, 1), 1);
  RuleChange change;
  change.rule = "mean";
  change.learning_rate = 0.125;
  ASSERT_TRUE(job.cluster.coordinator()->SetRule(change, nullptr).ok());
  RunTo(&job, 3);
  job.cluster.AwaitCheckpoints(1);
  RunTo(&job, 4);
  job.cluster.AwaitCheckpoints(job.cluster.Status().checkpoint.num_sealed);
  job.cluster.RestartAll();
  const JobStatus status = job.cluster.Status();
  ASSERT_TRUE(status.seeded) << status.message;
  EXPECT_EQ(status.combination.rule, "mean");
}

TEST_F(RecoveryTest, OneIsTakenWhenAnOperatorAsks) {
  TrainedJob job(WithCheckpoints(2, 0), 2);
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
  TrainedJob job(WithCheckpoints(2, 1), 2, 1);
  job.cluster.clock()->Advance(-absl::Hours(9000));
  job.cluster.RestartCoordinator();
  for (int i = 0; i < 3; ++i) job.cluster.Advance(absl::Seconds(1));
  const JobStatus status = job.cluster.Status();
  EXPECT_TRUE(status.seeded) << status.message;
}

}  // namespace
}  // namespace agg
