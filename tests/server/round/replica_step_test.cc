// A replica whose step fails between two rounds, when no phase is there to say
// so (P15, P17): rounds go on from the home, or the shard is lost by name.
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
  const uint64_t made = job.cluster.coordinator()->Status().epoch;
  FailStepOfVersionOne(&job, absl::InternalError("as the test wants it"));
  // Needs the turn: comes after all that the failed step leads to.
  EXPECT_EQ(job.cluster.engine(1)->ForgetManifest(made), absl::OkStatus());
  EXPECT_TRUE(job.cluster.engine(1)->Status().open);
  // Nobody else would tell the coordinator: workers have to bring it about.
  for (LocalWorker& worker : job.workers) {
    const auto reply = worker.Contribute(
        1, RandomTensors(job.manifest, RowSeed(1, worker.rank())));
    ASSERT_EQ(reply.status(), absl::OkStatus());
  }
  for (int i = 0; i < 4; ++i) job.cluster.Advance(absl::Seconds(1));
  const JobStatus status = job.cluster.coordinator()->Status();
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
