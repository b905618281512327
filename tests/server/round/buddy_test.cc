// Jobs whose parts have a second copy: a killed shard changes nothing.
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/backend_factory.h"
#include "server/base/mutex.h"
#include "server/shard/guarded_backend.h"
#include "tests/server/round/recovery_fixture.h"
#include "tests/server/round/reply.h"

namespace agg {
namespace {

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
    EXPECT_TRUE(job.cluster.Status().replicated);
    ExpectEndsAs(&job, 4, expected);
  }
}

TEST_F(BuddyTest, AKilledShardChangesNothing) {
  const Tensors expected = Undisturbed(3, 8);
  RunningJob job(Replicated(3), SmallManifest(), 2);
  uint64_t version = 1;
  for (const int shard : {1, 2, 1, 2}) {
    RunTo(&job, version);
    const uint64_t made = job.cluster.Status().epoch;
    job.cluster.RestartShard(shard);
    const JobStatus status = job.cluster.Status();
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
      const uint64_t made = job.cluster.Status().epoch;
      const uint64_t session = job.workers[0].session();
      job.cluster.RestartCoordinator();
      const JobStatus status = job.cluster.Status();
      ASSERT_EQ(status.version, version) << status.message;
      EXPECT_EQ(status.workers.size(), 2u);
      ResumeAll(&job, version, made);
      EXPECT_EQ(job.workers[0].session(), session);
      EXPECT_FALSE(job.workers[0].joined().rewound);
    }
    ExpectEndsAs(&job, 6, expected);
  }
}

// What the rule remembers goes on, though it is not the configured one.
TEST_F(BuddyTest, ARuleThatWasSetKeepsItsMemory) {
  RuleChange change;
  change.rule = "adacons";
  change.adacons_beta = 0.5;
  const auto run = [&](bool kill) {
    ClusterOptions options = Replicated(2);
    options.coordinator.combine.rule.rule = FindRule("mean");
    RunningJob job(options, SmallManifest(), 2);
    EXPECT_TRUE(job.cluster.coordinator()->SetRule(change, nullptr).ok());
    RunTo(&job, 3);
    if (kill) {
      const uint64_t made = job.cluster.Status().epoch;
      job.cluster.RestartCoordinator();
      ResumeAll(&job, 3, made);
      EXPECT_EQ(job.cluster.Status().combination.rule, "adacons");
    }
    RunTo(&job, 6);
    return *job.cluster.Pull(6);
  };
  EXPECT_TRUE(SameBits(run(true), run(false)));
}

// Shards that hold nothing forget it with all else; they are sent it again.
TEST_F(BuddyTest, ARuleThatWasSetBeforeTheSeedOutlivesTheCoordinator) {
  LocalCluster cluster(Replicated(2));
  RuleChange change;
  change.rule = "mean";
  ASSERT_TRUE(cluster.coordinator()->SetRule(change, nullptr).ok());
  cluster.Settle();
  cluster.RestartShard(1);
  std::vector<LocalWorker> workers = JoinTwo(&cluster);
  ASSERT_EQ(workers[0].Seed(RandomTensors(SmallManifest(), 1)),
            absl::OkStatus());
  cluster.RestartCoordinator();
  const JobStatus status = cluster.Status();
  ASSERT_TRUE(status.seeded) << status.message;
  EXPECT_EQ(status.combination.rule, "mean");
}

// A worker that slept through the end of its lease and a new coordinator.
TEST_F(BuddyTest, ASessionThatIsOverStaysSoForANewCoordinator) {
  TrainedJob job(Replicated(2), 2);
  ASSERT_EQ(job.workers[0].Leave(), absl::OkStatus());
  const uint64_t session = job.workers[0].session();
  job.cluster.RestartCoordinator();
  ASSERT_EQ(job.workers[0].Resume(2, 0), absl::OkStatus());
  EXPECT_NE(job.workers[0].session(), session);
}

TEST_F(BuddyTest, TwoNeighboursAtOnceAreTooMany) {
  TrainedJob job(Replicated(2), 2);
  job.cluster.RestartAll();
  EXPECT_FALSE(job.cluster.Status().seeded);
}

TEST_F(BuddyTest, WithCheckpointsEvenThatRewindsExactly) {
  const Tensors expected = Undisturbed(2, 6);
  ClusterOptions options = WithCheckpoints(2, 1);
  options.coordinator.replicated = true;
  options.shard.replicated = true;
  TrainedJob job(options, 3, 1);
  job.cluster.RestartAll();
  ASSERT_TRUE(job.cluster.Status().seeded);
  for (LocalWorker& worker : job.workers) {
    ASSERT_EQ(worker.Join(), absl::OkStatus());
  }
  ExpectEndsAs(&job, 6, expected);
}

// A replica whose step fails between two rounds, when no phase is there to say
// so (P15, P17): rounds go on from the home, or the shard is lost by name.

using testing::HasSubstr;

// The CPU backend, of which a replica's steps wait while a test wants them to,
// and the next one fails with what the test says then.
class ReplicaBackend : public GuardedBackend {
 public:
  ReplicaBackend() : ReplicaBackend(*MakeBackend("cpu", {1})) {}

  void Stop() {
    MutexLock lock(&mutex_);
    stopped_ = true;
  }
  // Returns once the step has failed.
  void Fail(absl::Status status) {
    MutexLock lock(&mutex_);
    next_ = std::move(status);
    stopped_ = false;
    changed_.NotifyAll();
    while (!next_.ok()) changed_.Wait(&mutex_);
  }

  absl::Status Step(const UpdateRequest& request) override {
    // Nobody pulls from a replica: its step writes no snapshot.
    if (request.snapshot == nullptr) {
      MutexLock lock(&mutex_);
      while (stopped_) changed_.Wait(&mutex_);
      const absl::Status next = std::exchange(next_, absl::OkStatus());
      changed_.NotifyAll();
      if (!next.ok()) return next;
    }
    return GuardedBackend::Step(request);
  }

 private:
  explicit ReplicaBackend(std::unique_ptr<Backend> cpu)
      : GuardedBackend(cpu.get()), cpu_(std::move(cpu)) {}

  const std::unique_ptr<Backend> cpu_;
  Mutex mutex_;
  CondVar changed_;
  absl::Status next_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

class ReplicaStepTest : public RecoveryTest {
 protected:
  ClusterOptions Replicated() {
    ClusterOptions options = Options(2);
    options.coordinator.replicated = true;
    options.shard.replicated = true;
    options.make_backend = [this] {
      auto backend = std::make_unique<ReplicaBackend>();
      backends_.push_back(backend.get());
      return backend;
    };
    options.on_device_lost = lost_.callback();
    return options;
  }
  // Version 1 is there, its phases are over, and behind them the step of shard
  // 1's replica fails.
  void FailStepOfVersionOne(RunningJob* job, const absl::Status& status) {
    backends_[1]->Stop();
    RunTo(job, 1);
    backends_[1]->Fail(status);
  }

  std::vector<ReplicaBackend*> backends_;  // by ordinal
  Reply<absl::Status> lost_;
};

TEST_F(ReplicaStepTest, AFailureRefusesNobodyAndTheNextRoundBringsANewCopy) {
  const Tensors expected = Undisturbed(2, 4);
  RunningJob job(Replicated(), SmallManifest(), 2);
  const uint64_t made = job.cluster.Status().epoch;
  FailStepOfVersionOne(&job, absl::InternalError("as the test wants it"));
  // Needs the turn: comes after all that the failed step leads to.
  EXPECT_EQ(job.cluster.engine(1)->ForgetManifest(made), absl::OkStatus());
  EXPECT_TRUE(job.cluster.engine(1)->Status().open);
  // Nobody else would tell the coordinator: workers have to bring it about.
  ContributeAll(&job.workers, 1);
  for (int i = 0; i < 4; ++i) job.cluster.Advance(absl::Seconds(1));
  const JobStatus status = job.cluster.Status();
  EXPECT_GT(status.epoch, made);
  EXPECT_EQ(status.version, 1u) << status.message;
  EXPECT_EQ(status.rewinds, 0u);
  ResumeAll(&job, 1, made);
  ExpectEndsAs(&job, 4, expected);
  EXPECT_FALSE(lost_.called());
}

// Early Grams have the same thread.
TEST_F(ReplicaStepTest, ALostDeviceIsReportedWithAndWithoutEarlyGrams) {
  for (const bool early_gram : {false, true}) {
    backends_.clear();
    lost_ = Reply<absl::Status>();
    ClusterOptions options = Replicated();
    options.shard.early_gram = early_gram;
    RunningJob job(options, SmallManifest(), 2);
    FailStepOfVersionOne(&job, absl::UnavailableError("the card is gone"));
    // No phase comes: the one that stepped says it.
    EXPECT_THAT(std::string(lost_.Get().message()),
                HasSubstr("shard 1: the card is gone"));
    EXPECT_FALSE(job.cluster.engine(1)->Status().attached);
  }
}

}  // namespace
}  // namespace agg
