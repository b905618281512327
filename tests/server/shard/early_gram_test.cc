// Grams of complete slices while others still arrive, on a running shard.
#include <atomic>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "server/base/job_phase.h"
#include "server/shard/guarded_backend.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using testing::HasSubstr;

// The CPU backend with a door before Gram, that a test can shut, and a list of
// the calls that came through it.
class WatchedBackend : public GuardedBackend {
 public:
  struct Call {
    size_t num_rows;
    std::vector<int64_t> begins;
  };

  WatchedBackend() : WatchedBackend(*MakeBackend("cpu", {1})) {}

  void Shut() {
    MutexLock lock(&mutex_);
    shut_ = true;
  }
  void Open() {
    MutexLock lock(&mutex_);
    shut_ = false;
    changed_.NotifyAll();
  }
  void FailNext(absl::Status status) {
    MutexLock lock(&mutex_);
    next_ = std::move(status);
  }
  // Waits until that many calls have come to the door; what they asked.
  std::vector<Call> WaitForCalls(size_t num_calls) {
    MutexLock lock(&mutex_);
    while (calls_.size() < num_calls) changed_.Wait(&mutex_);
    return calls_;
  }

  absl::Status Gram(const GramRequest& request) override {
    {
      MutexLock lock(&mutex_);
      Call call{request.rows.size(), {}};
      for (const ElementRange& range : request.ranges) {
        call.begins.push_back(range.begin);
      }
      calls_.push_back(std::move(call));
      changed_.NotifyAll();
      while (shut_) changed_.Wait(&mutex_);
      const absl::Status next = std::exchange(next_, absl::OkStatus());
      if (!next.ok()) return Watch(next);
    }
    return GuardedBackend::Gram(request);
  }

 private:
  explicit WatchedBackend(std::unique_ptr<Backend> cpu)
      : GuardedBackend(cpu.get()), cpu_(std::move(cpu)) {}

  const std::unique_ptr<Backend> cpu_;
  Mutex mutex_;
  CondVar changed_;
  bool shut_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status next_ ABSL_GUARDED_BY(mutex_);
  std::vector<Call> calls_ ABSL_GUARDED_BY(mutex_);
};

// Two workers, three slices (at 0, 64 and 96 of the layout), in round 0.
class EarlyGramTest : public testing::Test {
 protected:
  EarlyGramTest()
      : job_(Options(), MakeManifest({{40}, {}, {5}}), 2),
        plan_(*MakeShardPlan(job_.manifest, 1)) {}

  ClusterOptions Options() {
    ClusterOptions options = MakeClusterOptions(1, 2, "adasum");
    options.make_backend = [this] {
      auto backend = std::make_unique<WatchedBackend>();
      backend_ = backend.get();
      return backend;
    };
    options.on_device_lost = lost_.callback();
    return options;
  }

  ShardEngine* engine() { return job_.cluster.engine(0); }
  Tensors Row(int rank) {
    return RandomTensors(job_.manifest, 70 + static_cast<uint64_t>(rank));
  }
  TestFrame Frame(LocalWorker& worker, int slice, uint64_t round = 0) {
    return MakeFrames(worker.Header(round), plan_, 0,
                      Row(worker.rank()))[slice];
  }
  void Land(int rank, int slice) {
    const auto result = LandFrame(engine(), Frame(job_.workers[rank], slice));
    ASSERT_TRUE(result.ok()) << result.status();
  }
  void FinishRound() {
    for (LocalWorker& worker : job_.workers) {
      ASSERT_EQ(worker.Push(0, Row(worker.rank())), absl::OkStatus());
      worker.Commit(0);
    }
    job_.cluster.Settle();
  }
  // Version 1 of the same round without early Grams.
  Tensors Expected() {
    ClusterOptions options = MakeClusterOptions(1, 2, "adasum");
    options.shard.early_gram = false;
    RunningJob job(options, job_.manifest, 2);
    for (LocalWorker& worker : job.workers) {
      EXPECT_TRUE(worker.Contribute(0, Row(worker.rank())).ok());
    }
    EXPECT_EQ(job.cluster.engine(0)->Status().early_grams, 0);
    return *job.cluster.Pull(1);
  }

  WatchedBackend* backend_ = nullptr;
  Reply<absl::Status> lost_;
  RunningJob job_;
  const ShardPlan plan_;
};

TEST_F(EarlyGramTest, ACompleteSliceDoesNotWaitForTheOthers) {
  Land(1, 1);
  Land(0, 0);
  Land(0, 1);  // complete
  const auto calls = backend_->WaitForCalls(1);
  EXPECT_EQ(calls[0].num_rows, 2u);
  EXPECT_EQ(calls[0].begins, std::vector<int64_t>{64});
  FinishRound();
  EXPECT_EQ(*job_.cluster.Pull(1), Expected());
  const ShardStatus status = engine()->Status();
  EXPECT_GE(status.early_grams, 1);
  EXPECT_EQ(status.early_grams + status.grams_at_close, 3);
}

TEST_F(EarlyGramTest, TheRoundGoesOnAfterAnErrorOfAnEarlyGram) {
  backend_->FailNext(absl::InternalError("as the test wants it"));
  for (const int rank : {0, 1}) Land(rank, 0);
  backend_->WaitForCalls(1);
  FinishRound();
  EXPECT_EQ(*job_.cluster.Pull(1), Expected());
  ASSERT_EQ(job_.cluster.reports().size(), 1u);
  EXPECT_TRUE(job_.cluster.reports()[0].applied);
}

TEST_F(EarlyGramTest, AnotherSessionOfARankWaitsForTheGramThatReadsItsRow) {
  backend_->Shut();
  for (const int rank : {0, 1}) Land(rank, 0);
  backend_->WaitForCalls(1);  // it reads
  LocalWorker again = Joined(&job_.cluster, 1, job_.manifest);
  TestFrame frame = Frame(again, 0);
  std::atomic<bool> opened{false};
  std::atomic<bool> started{false};
  std::thread pusher([&] {
    started = true;
    auto landing = engine()->BeginFrame(frame.header);
    EXPECT_TRUE(opened);
    ASSERT_TRUE(landing.ok()) << landing.status();
    CopyPayload(frame, &*landing);
    EXPECT_TRUE(engine()->EndFrame(*landing).ok());
  });
  while (!started) std::this_thread::yield();
  // A slice that is not read is free at once.
  EXPECT_TRUE(LandFrame(engine(), Frame(again, 1)).ok());
  opened = true;
  backend_->Open();
  pusher.join();
  job_.workers.pop_back();
  job_.workers.push_back(again);
  FinishRound();
  EXPECT_EQ(*job_.cluster.Pull(1), Expected());
}

TEST_F(EarlyGramTest, AWorkerThatLeavesLeavesTheGramsToo) {
  job_.RunRound(0);
  const size_t before = backend_->WaitForCalls(0).size();
  for (LocalWorker& worker : job_.workers) {
    ASSERT_TRUE(LandFrame(engine(), Frame(worker, 0, /*round=*/1)).ok());
  }
  backend_->WaitForCalls(before + 1);
  ASSERT_EQ(job_.workers[1].Leave(), absl::OkStatus());
  // What the other has landed is complete now.
  EXPECT_EQ(backend_->WaitForCalls(before + 2)[before + 1].num_rows, 1u);
  ASSERT_TRUE(job_.workers[0].Contribute(1, Row(0)).ok());
  job_.cluster.Settle();
  ASSERT_EQ(job_.cluster.reports().size(), 2u);
  EXPECT_EQ(job_.cluster.reports()[1].rows.size(), 1u);
  // Adasum of one row is the row.
  const Tensors start = *job_.cluster.Pull(1);
  const Tensors end = *job_.cluster.Pull(2);
  EXPECT_EQ(end[0][7], start[0][7] - 0.5f * Row(0)[0][7]);
}

TEST_F(EarlyGramTest, AWorkerThatJoinsMeanwhileLeavesTheGramsThatThereAre) {
  job_.RunRound(0);
  const size_t before = backend_->WaitForCalls(0).size();
  const int64_t early = engine()->Status().early_grams;
  for (LocalWorker& worker : job_.workers) {
    ASSERT_TRUE(LandFrame(engine(), Frame(worker, 0, /*round=*/1)).ok());
  }
  backend_->WaitForCalls(before + 1);
  LocalWorker late = Joined(&job_.cluster, 2, job_.manifest);
  for (LocalWorker& worker : job_.workers) {
    ASSERT_EQ(worker.Push(1, Row(worker.rank())), absl::OkStatus());
    worker.Commit(1);
  }
  job_.cluster.Settle();
  EXPECT_GE(engine()->Status().early_grams, early + 1);
}

TEST_F(EarlyGramTest, EveryRoundHasItsOwn) {
  for (uint64_t round = 0; round < 3; ++round) job_.RunRound(round);
  ClusterOptions options = MakeClusterOptions(1, 2, "adasum");
  options.shard.early_gram = false;
  RunningJob other(options, job_.manifest, 2);
  for (uint64_t round = 0; round < 3; ++round) other.RunRound(round);
  EXPECT_EQ(*job_.cluster.Pull(3), *other.cluster.Pull(3));
  const ShardStatus status = engine()->Status();
  EXPECT_EQ(status.early_grams + status.grams_at_close, 9);
}

// The same rows may be expected in two rounds in turn; their Grams are not the
// same.
TEST_F(EarlyGramTest, ASkippedRoundTakesItsGramsAlong) {
  for (const int rank : {0, 1}) Land(rank, 0);
  backend_->WaitForCalls(1);
  Phase skip;
  skip.kind = PhaseKind::kPublish;
  skip.epoch = job_.workers[0].joined().epoch;
  skip.publish.version = 1;
  skip.publish.unchanged = true;
  ASSERT_TRUE(engine()->RunPhase(skip).ok());
  Phase close;
  close.kind = PhaseKind::kClose;
  close.epoch = skip.epoch;
  close.round = 1;
  for (LocalWorker& worker : job_.workers) {
    ASSERT_EQ(worker.Push(1, RandomTensors(job_.manifest, 5)),
              absl::OkStatus());
    close.rows.push_back({worker.rank(), worker.session()});
  }
  const auto grams = engine()->RunPhase(close);
  ASSERT_TRUE(grams.ok()) << grams.status();
  // Equal rows have equal entries; those of round 0 were not equal.
  EXPECT_EQ(grams->grams[0].hi[0], grams->grams[0].hi[1]);
}

TEST_F(EarlyGramTest, ALostDeviceEndsTheEpochBeforeAnybodyCloses) {
  backend_->FailNext(absl::UnavailableError("lost"));
  for (const int rank : {0, 1}) Land(rank, 0);
  // Called by the gap filler, after it has told the coordinator.
  EXPECT_EQ(lost_.Get(), absl::UnavailableError("shard 0: lost"));
  const absl::Status refused =
      LandFrame(engine(), Frame(job_.workers[0], 1)).status();
  EXPECT_TRUE(absl::IsUnavailable(refused));
  EXPECT_THAT(refused.message(), HasSubstr("shard 0: lost"));
  const JobStatus status = job_.cluster.Status();
  EXPECT_EQ(status.phase, JobPhase::kShardLost);
  EXPECT_THAT(status.message, HasSubstr("lost"));
}

// Before all workers are there, the rows of those that are would be computed
// again and again.
TEST(EarlyGramStart, WaitsForTheExpectedWorkers) {
  WatchedBackend* backend = nullptr;
  ClusterOptions options = MakeClusterOptions(1, 2);
  options.make_backend = [&backend] {
    auto made = std::make_unique<WatchedBackend>();
    backend = made.get();
    return made;
  };
  RunningJob job(options, MakeManifest({{40}}), 1);
  const Tensors row = RandomTensors(job.manifest, 1);
  ASSERT_EQ(job.workers[0].Push(0, row), absl::OkStatus());
  LocalWorker second = Joined(&job.cluster, 1, job.manifest);
  ASSERT_EQ(second.Push(0, row), absl::OkStatus());
  EXPECT_EQ(backend->WaitForCalls(1)[0].num_rows, 2u);
}

}  // namespace
}  // namespace agg
