// Everything at once: the coordinator's thread, the real clock, workers and
// readers on threads of their own. Nothing here depends on timing; run it under
// ThreadSanitizer.
#include <atomic>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

constexpr int kShards = 3;
constexpr int kWorkers = 4;
constexpr uint64_t kRounds = 25;

Manifest TestManifest() { return MakeManifest({{300}, {}, {0}, {64}, {5}}); }

ClusterOptions RealClockOptions() {
  ClusterOptions options = MakeClusterOptions(kShards, kWorkers);
  options.coordinator.lease = absl::Hours(1);
  options.real_clock = true;
  return options;
}

// Joins as soon as the shards are attached.
void JoinSoon(LocalWorker* worker) {
  for (;;) {
    const absl::Status status = worker->Join();
    if (status.ok()) return;
    ASSERT_TRUE(absl::IsUnavailable(status)) << status;
    std::this_thread::yield();
  }
}

Tensors RowOf(const Manifest& manifest, uint64_t round, int rank) {
  return RandomTensors(manifest, 100 * round + static_cast<uint64_t>(rank));
}

// What a trainer does: pull, push (twice: a retry), commit, next round.
void Train(LocalCluster* cluster, LocalWorker* worker,
           const Manifest& manifest) {
  for (uint64_t round = 0; round < kRounds; ++round) {
    ASSERT_TRUE(cluster->Pull(round).ok());
    const Tensors row = RowOf(manifest, round, worker->rank());
    ASSERT_EQ(worker->Push(round, row, round + 1), absl::OkStatus());
    ASSERT_EQ(worker->Push(round, row), absl::OkStatus());
    const OutcomeReply first = worker->Commit(round);
    const OutcomeReply repeat = worker->Commit(round);
    for (const OutcomeReply& reply : {first, repeat}) {
      const auto outcome = reply.Get();
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      ASSERT_EQ(outcome->kind, OutcomeKind::kApplied);
      ASSERT_TRUE(outcome->included);
      ASSERT_EQ(outcome->version, round + 1);
    }
    ASSERT_TRUE(cluster->coordinator()
                    ->Renew(worker->joined().epoch, worker->session())
                    .ok());
  }
}

// The same job on the test's thread alone.
Tensors ExpectedEnd(const Manifest& manifest) {
  RunningJob job(MakeClusterOptions(1, kWorkers), manifest, kWorkers);
  for (uint64_t round = 0; round < kRounds; ++round) {
    for (LocalWorker& worker : job.workers) {
      EXPECT_TRUE(
          worker.Contribute(round, RowOf(manifest, round, worker.rank())).ok());
    }
    job.cluster.Settle();
  }
  return *job.cluster.Pull(kRounds);
}

TEST(ThreadedJobTest, WorkersAndReadersAtOnceGiveTheSameBits) {
  const Manifest manifest = TestManifest();
  LocalCluster cluster(RealClockOptions());
  std::vector<LocalWorker> workers;
  for (int rank = 0; rank < kWorkers; ++rank) {
    workers.emplace_back(&cluster, rank, manifest);
    JoinSoon(&workers.back());
  }
  ASSERT_EQ(workers[0].Seed(RandomTensors(manifest, 1)), absl::OkStatus());

  std::atomic<bool> done{false};
  std::thread reader([&] {
    while (!done) {
      Reply<absl::StatusOr<PublishedVersion>> reply;
      cluster.engine(1)->Pull(0, 0, /*latest=*/true, reply.callback());
      ASSERT_TRUE(reply.Get().ok());
      Tensors tensors;
      ReadVersion(*reply.Get(), DType::kF32, &tensors);
      cluster.Status();
      cluster.engine(2)->Status();
    }
  });
  std::vector<std::thread> trainers;
  for (LocalWorker& worker : workers) {
    trainers.emplace_back(
        [&cluster, &worker, &manifest] { Train(&cluster, &worker, manifest); });
  }
  for (std::thread& trainer : trainers) trainer.join();
  done = true;
  reader.join();
  const absl::StatusOr<Tensors> end = cluster.Pull(kRounds);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(*end, ExpectedEnd(manifest));
  for (LocalWorker& worker : workers) {
    EXPECT_EQ(worker.Leave(), absl::OkStatus());
  }
  EXPECT_TRUE(cluster.coordinator()->finished());
}

using ReduceReply = Reply<absl::StatusOr<ReduceAnswer>>;

ReduceReply Reduce(LocalCluster* cluster, const LocalWorker& worker,
                   uint64_t number, bool withdraw = false) {
  ReduceCall call;
  call.session = worker.session();
  call.name = {100 + static_cast<uint64_t>(worker.rank()), number};
  call.withdraw = withdraw;
  if (!withdraw) {
    call.what = "the sum of x";
    call.values = {static_cast<double>(number)};
  }
  ReduceReply reply;
  cluster->coordinator()->Reduce(worker.joined().epoch, call, reply.callback());
  return reply;
}

// Asks until the sums are there; a slow machine may have it ask again.
void ExpectSums(LocalCluster* cluster, const LocalWorker& worker,
                uint64_t number) {
  for (;;) {
    Reduce(cluster, worker, number);  // its connection breaks, say
    const ReduceReply reply = Reduce(cluster, worker, number);
    ASSERT_TRUE(reply.Get().ok()) << reply.Get().status();
    if (reply.Get()->made == nullptr) continue;
    const KeptReduction& made = *reply.Get()->made;
    ASSERT_THAT(made.sums, testing::ElementsAre(kWorkers * number));
    ASSERT_THAT(made.ranks, testing::SizeIs(kWorkers));
    return;
  }
}

// P51: beside rounds, which all of them end before they reduce again, nobody is
// left out.
TEST(ThreadedJobTest, WorkersReduceBetweenRounds) {
  const Manifest manifest = TestManifest();
  LocalCluster cluster(RealClockOptions());
  std::vector<LocalWorker> workers;
  for (int rank = 0; rank < kWorkers; ++rank) {
    workers.emplace_back(&cluster, rank, manifest);
    JoinSoon(&workers.back());
  }
  ASSERT_EQ(workers[0].Seed(RandomTensors(manifest, 1)), absl::OkStatus());
  std::vector<std::thread> threads;
  for (LocalWorker& worker : workers) {
    threads.emplace_back([&] {
      for (uint64_t round = 0; round < kRounds; ++round) {
        ASSERT_TRUE(cluster.Pull(round).ok());
        ExpectSums(&cluster, worker, 2 * round + 1);
        const ReduceReply late = Reduce(&cluster, worker, 2 * round + 1, true);
        ASSERT_TRUE(late.Get().ok()) << late.Get().status();
        ASSERT_NE(late.Get()->made, nullptr);
        ExpectSums(&cluster, worker, 2 * round + 2);
        const auto reply =
            worker.Contribute(round, RowOf(manifest, round, worker.rank()));
        ASSERT_TRUE(reply.ok()) << reply.status();
        ASSERT_TRUE(reply->Get().ok()) << reply->Get().status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// One life of a rank: a round, whose outcome is waited for or not.
void LiveOnce(LocalCluster* cluster, const Manifest& manifest, int rank,
              bool to_the_end) {
  LocalWorker worker(cluster, rank, manifest);
  JoinSoon(&worker);
  const auto stream = cluster->coordinator()->Attend(
      worker.joined().epoch, worker.session(), [](const JobEvent&) {});
  ASSERT_TRUE(stream.ok()) << stream.status();
  const uint64_t round = worker.joined().first_round;
  ASSERT_TRUE(cluster->Pull(round).ok());
  ASSERT_EQ(worker.Push(round, RowOf(manifest, round, rank)), absl::OkStatus());
  const OutcomeReply reply = worker.Commit(round);
  if (!to_the_end) return;  // the rank's next life replaces it
  ASSERT_TRUE(reply.Get().ok()) << reply.Get().status();
  EXPECT_TRUE(reply.Get()->included);
  ASSERT_EQ(worker.Leave(), absl::OkStatus());
  cluster->coordinator()->Detach(*stream);
}

// Ranks leave, come back and are taken over while one worker trains on.
TEST(ThreadedJobTest, RanksAreTakenOverWhileTheJobRuns) {
  const Manifest manifest = TestManifest();
  LocalCluster cluster(RealClockOptions());
  LocalWorker constant(&cluster, kWorkers, manifest);
  JoinSoon(&constant);
  ASSERT_EQ(constant.Seed(RandomTensors(manifest, 1)), absl::OkStatus());
  std::atomic<bool> done{false};
  std::thread trainer([&] {
    for (uint64_t round = 0; !done; ++round) {
      ASSERT_TRUE(cluster.Pull(round).ok());
      const auto reply = constant.Contribute(round, RowOf(manifest, round, 9));
      ASSERT_TRUE(reply.ok()) << reply.status();
      ASSERT_TRUE(reply->Get().ok()) << reply->Get().status();
    }
  });
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorkers; ++rank) {
    threads.emplace_back([&, rank] {
      for (int life = 0; life < 7; ++life) {
        LiveOnce(&cluster, manifest, rank, /*to_the_end=*/life % 2 == 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  done = true;
  trainer.join();
  EXPECT_FALSE(cluster.coordinator()->finished());
  EXPECT_EQ(constant.Leave(), absl::OkStatus());
  EXPECT_TRUE(cluster.coordinator()->finished());
}

// Losing the epoch again and again while workers push, pull and commit: every
// call ends, and a new seed starts the job again.
TEST(ThreadedJobTest, LostEpochsEndEveryCall) {
  const Manifest manifest = TestManifest();
  LocalCluster cluster(RealClockOptions());
  std::atomic<int> num_lost{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorkers; ++rank) {
    threads.emplace_back([&, rank] {
      LocalWorker worker(&cluster, rank, manifest);
      JoinSoon(&worker);
      if (worker.joined().seed_role) {
        worker.Seed(RandomTensors(manifest, 1)).IgnoreError();
      }
      for (uint64_t round = 0;; ++round) {
        if (!cluster.Pull(round).ok()) break;
        if (!worker.Push(round, RowOf(manifest, round, rank)).ok()) break;
        if (!worker.Commit(round).Get().ok()) break;
        if (rank == 0 && round == 3) {
          cluster.peer(2)->ReportLost(absl::UnavailableError("shard 2: lost"));
        }
      }
      ++num_lost;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_lost, kWorkers);

  std::vector<LocalWorker> again;
  for (int rank = 0; rank < kWorkers; ++rank) {
    again.emplace_back(&cluster, rank, manifest);
    JoinSoon(&again.back());
  }
  // All memory is there: the job goes on where it was.
  ASSERT_TRUE(again[0].joined().seeded);
  const uint64_t version = again[0].joined().version;
  EXPECT_GE(version, 3u);
  EXPECT_TRUE(cluster.Pull(version).ok());
}

}  // namespace
}  // namespace agg
