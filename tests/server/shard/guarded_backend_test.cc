// Errors of a backend: counted, a lost device reported, and its shard's epoch
// over.
#include "server/shard/guarded_backend.h"

#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/backend_factory.h"
#include "server/base/job_phase.h"
#include "server/base/mutex.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using testing::HasSubstr;

// The CPU backend until a status is set, which every later call gets.
class FailingBackend : public GuardedBackend {
 public:
  FailingBackend() : FailingBackend(*MakeBackend("cpu", {1})) {}

  void Fail(absl::Status status) { status_ = std::move(status); }

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(BufferUse use,
                                                   int64_t bytes) override {
    if (!status_.ok()) return status_;
    return GuardedBackend::Allocate(use, bytes);
  }
  absl::Status Read(const Buffer& state, absl::Span<float> values) override {
    return status_.ok() ? GuardedBackend::Read(state, values) : status_;
  }
  absl::Status Gram(const GramRequest& request) override {
    return status_.ok() ? GuardedBackend::Gram(request) : status_;
  }
  absl::Status Update(const UpdateRequest& request) override {
    return status_.ok() ? GuardedBackend::Update(request) : status_;
  }

 private:
  explicit FailingBackend(std::unique_ptr<Backend> cpu)
      : GuardedBackend(cpu.get()), cpu_(std::move(cpu)) {}

  const std::unique_ptr<Backend> cpu_;
  absl::Status status_;
};

TEST(GuardedBackendTest, CountsErrorsAndTellsOfALostDeviceOnce) {
  FailingBackend failing;
  GuardedBackend guarded(&failing);
  const auto buffer = guarded.Allocate(BufferUse::kState, 64);
  ASSERT_TRUE(buffer.ok());
  // A refused copy is an error as others.
  EXPECT_FALSE(guarded.Write({}, buffer->get()).ok());
  EXPECT_EQ(guarded.num_errors(), 1);
  std::vector<float> values(16);
  ASSERT_TRUE(guarded.Write(values, buffer->get()).ok());
  ASSERT_TRUE(guarded.Read(**buffer, absl::MakeSpan(values)).ok());
  failing.Fail(absl::InternalError("once"));
  EXPECT_EQ(guarded.Gram({}), absl::InternalError("once"));
  EXPECT_EQ(guarded.num_errors(), 2);
  EXPECT_EQ(guarded.TakeLostDevice(), absl::OkStatus());
  failing.Fail(absl::UnavailableError("gone"));
  EXPECT_EQ(guarded.Update({}), absl::UnavailableError("gone"));
  EXPECT_EQ(guarded.Allocate(BufferUse::kRow, 64).status(),
            absl::UnavailableError("gone"));
  EXPECT_EQ(guarded.Read(**buffer, absl::MakeSpan(values)),
            absl::UnavailableError("gone"));
  EXPECT_EQ(guarded.num_errors(), 5);
  // Refused: there is nothing to write to.
  EXPECT_FALSE(guarded.Combine({}).ok());
  EXPECT_FALSE(guarded.Step({}).ok());
  EXPECT_EQ(guarded.num_errors(), 7);
  EXPECT_EQ(guarded.TakeLostDevice(), absl::UnavailableError("gone"));
  EXPECT_EQ(guarded.TakeLostDevice(), absl::OkStatus());
  EXPECT_EQ(guarded.Gram({}), absl::UnavailableError("gone"));
  EXPECT_EQ(guarded.TakeLostDevice(), absl::OkStatus());
}

// A phase of many calls does not hang, though it takes long (P31).
TEST(GuardedBackendTest, EachCallThatEndsIsProgress) {
  FailingBackend cpu;
  Progress progress;
  GuardedBackend guarded(&cpu, &progress);
  const auto buffer = guarded.Allocate(BufferUse::kState, 64);
  ASSERT_TRUE(buffer.ok());
  const uint64_t before = progress.count();
  const std::vector<float> values(16);
  ASSERT_TRUE(guarded.Write(values, buffer->get()).ok());
  EXPECT_EQ(progress.count(), before + 1);
}

TEST(GuardedBackendTest, ARoundIsProgress) {
  RunningJob job(MakeClusterOptions(1, 1), MakeManifest({{40}}), 1);
  const uint64_t before = job.cluster.engine(0)->Progress();
  job.RunRound(0);
  EXPECT_GT(job.cluster.engine(0)->Progress(), before);
}

// One worker on two shards, of which shard 1 fails.
class BackendErrorTest : public testing::Test {
 protected:
  BackendErrorTest() : job_(Options(), MakeManifest({{40}, {30}}), 1) {}

  ClusterOptions Options() {
    ClusterOptions options = MakeClusterOptions(2, 1);
    // Errors at a time that the test knows.
    options.shard.early_gram = false;
    options.make_backend = [this] {
      auto backend = std::make_unique<FailingBackend>();
      backend_ = backend.get();
      return backend;
    };
    return options;
  }
  OutcomeReply RunRound() {
    auto reply = job_.workers[0].Contribute(0, RandomTensors(job_.manifest, 1));
    EXPECT_TRUE(reply.ok()) << reply.status();
    job_.cluster.Settle();
    return *std::move(reply);
  }

  FailingBackend* backend_ = nullptr;  // of shard 1, the last one made
  RunningJob job_;
};

TEST_F(BackendErrorTest, AnErrorBeforeCoefficientsSkipsTheRoundOnAllShards) {
  backend_->Fail(absl::InternalError("broken launch"));
  RunRound();
  ASSERT_EQ(job_.cluster.reports().size(), 1u);
  const RoundReport report = job_.cluster.reports()[0];
  EXPECT_FALSE(report.applied);
  EXPECT_THAT(report.message, HasSubstr("shard 1"));
  EXPECT_THAT(report.message, HasSubstr("broken launch"));
  EXPECT_EQ(*job_.cluster.Pull(1), *job_.cluster.Pull(0));
  EXPECT_EQ(job_.cluster.engine(1)->Status().backend_errors, 2);  // tried twice
  EXPECT_EQ(job_.cluster.engine(0)->Status().backend_errors, 0);
}

TEST_F(BackendErrorTest, ALostDeviceEndsTheEpochAndNamesTheShard) {
  backend_->Fail(absl::UnavailableError("the device is lost"));
  RunRound();
  EXPECT_TRUE(job_.cluster.reports().empty());
  const JobStatus status = job_.cluster.Status();
  EXPECT_EQ(status.phase, JobPhase::kShardLost);
  EXPECT_THAT(status.message, HasSubstr("shard 1"));
  EXPECT_THAT(status.message, HasSubstr("the device is lost"));
  EXPECT_EQ(job_.cluster.engine(1)->Status().backend_errors, 1);
}

// On which thread the memory of rows ends: giving it back takes long.

// Threads, and how many rows have ended on each.
class Ends {
 public:
  void Note() {
    MutexLock lock(&mutex_);
    ++num_[std::this_thread::get_id()];
  }
  int On(std::thread::id thread) {
    MutexLock lock(&mutex_);
    return num_[thread];
  }
  int All() {
    MutexLock lock(&mutex_);
    int all = 0;
    for (const auto& [thread, number] : num_) all += number;
    return all;
  }

 private:
  Mutex mutex_;
  std::map<std::thread::id, int> num_;
};

class NotedRow : public Buffer {
 public:
  NotedRow(std::unique_ptr<Buffer> row, Ends* ends)
      : row_(std::move(row)), ends_(ends) {}
  ~NotedRow() override { ends_->Note(); }
  char* host() const override { return row_->host(); }
  int64_t num_bytes() const override { return row_->num_bytes(); }
  char* device() const override { return row_->device(); }

 private:
  const std::unique_ptr<Buffer> row_;
  Ends* const ends_;
};

class NotingBackend : public GuardedBackend {
 public:
  NotingBackend(std::unique_ptr<Backend> backend, Ends* ends)
      : GuardedBackend(backend.get()),
        backend_(std::move(backend)),
        ends_(ends) {}

  absl::StatusOr<std::unique_ptr<Buffer>> Adopt(
      BufferUse use, char* host, int64_t num_bytes,
      absl::Status* registered) override {
    auto buffer = GuardedBackend::Adopt(use, host, num_bytes, registered);
    if (!buffer.ok() || use != BufferUse::kRow) return buffer;
    return std::make_unique<NotedRow>(*std::move(buffer), ends_);
  }

 private:
  const std::unique_ptr<Backend> backend_;
  Ends* const ends_;
};

// Two workers on one shard; the test's thread is the coordinator's.
class EndedRowsTest : public testing::Test {
 protected:
  EndedRowsTest() : job_(Options(&ends_), MakeManifest({{40}, {5}}), 2) {}

  static ClusterOptions Options(Ends* ends) {
    ClusterOptions options = MakeClusterOptions(1, 2);
    options.shard.shared_memory = true;
    options.make_backend = [ends] {
      return std::make_unique<NotingBackend>(*MakeBackend("cpu", {1}), ends);
    };
    return options;
  }

  // The worker of rank 0 writes its row itself, and is replaced.
  void ReplaceWorker() {
    const uint64_t session = job_.workers[0].session();
    ASSERT_TRUE(engine()->GrantRegions({session, 0, engine()->life()}).ok());
    next_ = std::make_unique<LocalWorker>(&job_.cluster, 0, job_.manifest);
    ASSERT_TRUE(next_->Join().ok());
  }

  void ExpectOneEndElsewhere() {
    engine()->AwaitEndedRows();
    EXPECT_EQ(ends_.All(), 1);
    EXPECT_EQ(ends_.On(std::this_thread::get_id()), 0);
  }

  ShardEngine* engine() { return job_.cluster.engine(0); }

  Ends ends_;
  RunningJob job_;
  std::unique_ptr<LocalWorker> next_;
};

TEST_F(EndedRowsTest, ARowOfAReplacedWorkerDelaysNobody) {
  ReplaceWorker();
  ExpectOneEndElsewhere();
}

TEST_F(EndedRowsTest, NorDoesOneThatTheRoundHasHeld) {
  const Tensors row = RandomTensors(job_.manifest, 5);
  ASSERT_TRUE(job_.workers[0].Contribute(0, row).ok());
  ReplaceWorker();
  engine()->AwaitEndedRows();
  EXPECT_EQ(ends_.All(), 0);
  ASSERT_TRUE(job_.workers[1].Contribute(0, row).ok());
  job_.cluster.Settle();
  ExpectOneEndElsewhere();
}

}  // namespace
}  // namespace agg
