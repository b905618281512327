// Memory for those who join is reserved away from the loop (P32): what goes
// wrong there fails the Join and nothing else.
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/mutex.h"
#include "server/coordinator/coordinator.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using testing::AllOf;
using testing::HasSubstr;

ClusterOptions Options() {
  ClusterOptions options = MakeClusterOptions(2, 1);
  options.coordinator.max_workers = 3;
  options.shard.max_workers = 3;
  return options;
}

class ReservationTest : public testing::Test {
 protected:
  ReservationTest() : job_(Options(), MakeManifest({{300}, {64}}), 1) {}

  // The calls of a Join of this rank, without waiting for its answer.
  Reply<absl::StatusOr<JoinResult>> Join(
      int32_t rank, Coordinator::GoneCallback gone = nullptr) {
    JoinCall call;
    call.rank = rank;
    call.manifest = job_.manifest;
    Reply<absl::StatusOr<JoinResult>> reply;
    job_.cluster.coordinator()->Join(call, reply.callback(), std::move(gone));
    return reply;
  }
  // The first epoch is still on, and rounds run.
  void ExpectUndisturbed() {
    EXPECT_EQ(job_.cluster.Status().epoch, job_.workers[0].joined().epoch);
    EXPECT_EQ(job_.cluster.Status().workers.size(), 1u);
    job_.RunRound(round_++);
    EXPECT_EQ(job_.cluster.Status().version, round_);
  }
  int64_t Planned(int shard) {
    return job_.cluster.engine(shard)->Status().memory_planned_bytes;
  }

  uint64_t round_ = 0;
  RunningJob job_;
};

TEST_F(ReservationTest, AShardWithoutMemoryFailsTheJoinAlone) {
  job_.cluster.peer(1)->FailNextReservation(
      absl::ResourceExhaustedError("no 4.0 MiB"));
  const auto reply = Join(1);
  job_.cluster.Settle();
  const absl::Status status = reply.Get().status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no 4.0 MiB; free memory on that host"));
  ExpectUndisturbed();
  const auto again = Join(1);
  job_.cluster.Settle();
  EXPECT_TRUE(again.Get().ok()) << again.Get().status();
}

TEST_F(ReservationTest, AShardThatIsLostMeanwhileFailsTheJoinAlone) {
  job_.cluster.peer(1)->FailNextReservation(absl::UnavailableError("gone"), 2);
  const auto reply = Join(1);
  job_.cluster.Settle();
  EXPECT_TRUE(absl::IsUnavailable(reply.Get().status()));
  // Its Attach stream says whether it is lost, and nothing else does.
  ExpectUndisturbed();
}

TEST_F(ReservationTest, ASlowOneFailsTheJoinAndServesTheNext) {
  job_.cluster.peer(1)->BeforeReservation([this] {
    job_.cluster.clock()->Advance(absl::Seconds(29));
    job_.cluster.coordinator()->CheckDeadlines();
  });
  const auto in_time = Join(1);
  job_.cluster.coordinator()->RunOnce();
  EXPECT_TRUE(in_time.Get().ok()) << in_time.Get().status();

  Reply<absl::StatusOr<JoinResult>> late;
  job_.cluster.peer(1)->BeforeReservation([&] {
    job_.cluster.clock()->Advance(absl::Seconds(30));
    job_.cluster.coordinator()->CheckDeadlines();
    // The answer does not wait for the shard.
    EXPECT_TRUE(late.called());
  });
  late = Join(2);
  job_.cluster.coordinator()->RunOnce();
  EXPECT_TRUE(absl::IsUnavailable(late.Get().status()));
  EXPECT_THAT(std::string(late.Get().status().message()),
              AllOf(HasSubstr("shard 1 (this process) ha"),
                    HasSubstr(" not reserved memory for rank 2 within 30s")));
  EXPECT_EQ(late.num_calls(), 1);

  // What the shard has reserved in the end is what the next Join uses.
  job_.cluster.peer(1)->BeforeReservation(nullptr);
  const int64_t planned = Planned(1);
  const auto again = Join(2);
  job_.cluster.coordinator()->RunOnce();
  EXPECT_TRUE(again.Get().ok()) << again.Get().status();
  EXPECT_EQ(Planned(1), planned);
}

TEST_F(ReservationTest, ACallerThatGoesMeanwhileMakesNoMember) {
  bool gone = false;
  job_.cluster.peer(1)->BeforeReservation([&] { gone = true; });
  const auto reply = Join(1, [&] { return gone; });
  job_.cluster.Settle();
  EXPECT_TRUE(absl::IsCancelled(reply.Get().status()));
  ExpectUndisturbed();
}

TEST_F(ReservationTest, SetSessionFindsTheRowReserved) {
  const uint64_t epoch = job_.workers[0].joined().epoch;
  ShardEngine* const engine = job_.cluster.engine(0);
  const int64_t before = Planned(0);
  ASSERT_EQ(engine->ReserveRow(epoch, 1, 0), absl::OkStatus());
  const int64_t reserved = Planned(0);
  EXPECT_GT(reserved, before);
  ASSERT_EQ(engine->ReserveRow(epoch, 1, 0), absl::OkStatus());
  SessionChange change;
  change.session = 5;
  change.rank = 1;
  ASSERT_EQ(engine->SetSession(epoch, change), absl::OkStatus());
  EXPECT_EQ(Planned(0), reserved);
  EXPECT_TRUE(absl::IsAborted(engine->ReserveRow(epoch - 1, 2, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(engine->ReserveRow(epoch, 3, 0)));
}

// With threads: a shard that allocates for as long as it likes holds up neither
// rounds nor those who leave.
TEST(ReservationThreadTest, RoundsGoOnMeanwhile) {
  ClusterOptions options = Options();
  options.real_clock = true;
  options.coordinator.lease = absl::Hours(1);
  const Manifest manifest = MakeManifest({{300}, {64}});
  LocalCluster cluster(options);
  LocalWorker worker(&cluster, 0, manifest);
  while (!worker.Join().ok()) {  // the shards are being attached
  }
  ASSERT_EQ(worker.Seed(RandomTensors(manifest, 1)), absl::OkStatus());
  Mutex mutex;
  CondVar changed;
  bool reserving = false;
  bool released = false;
  cluster.peer(1)->BeforeReservation([&] {
    MutexLock lock(&mutex);
    reserving = true;
    changed.NotifyAll();
    while (!released) changed.Wait(&mutex);
  });
  JoinCall call;
  call.rank = 1;
  call.manifest = manifest;
  Reply<absl::StatusOr<JoinResult>> joined;
  cluster.coordinator()->Join(call, joined.callback());
  {
    MutexLock lock(&mutex);
    while (!reserving) changed.Wait(&mutex);
  }
  const auto reply = worker.Contribute(0, RandomTensors(manifest, 2));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->Get()->version, 1u);
  EXPECT_FALSE(joined.called());
  {
    MutexLock lock(&mutex);
    released = true;
    changed.NotifyAll();
  }
  EXPECT_TRUE(joined.Get().ok()) << joined.Get().status();
}

}  // namespace
}  // namespace agg
