// On which thread the memory of rows ends: giving it back takes long.
#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/backend_factory.h"
#include "server/base/mutex.h"
#include "server/shard/guarded_backend.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

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
