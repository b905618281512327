// The manifest of a job that is not seeded goes with the last worker that
// joined with it (P3), however that one goes, and on all shards.
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/coordinator.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

ClusterOptions Options(int num_shards, bool replicated) {
  ClusterOptions options = MakeClusterOptions(num_shards, 1);
  options.coordinator.max_workers = 3;
  options.shard.max_workers = 3;
  options.coordinator.replicated = replicated;
  options.shard.replicated = replicated;
  return options;
}

// With more slices than the right one, and others.
Manifest Wrong() { return MakeManifest({{9}, {1 << 21}, {7, 3}, {2}}); }
Manifest Right() { return MakeManifest({{300}, {64}}); }

void Evict(LocalCluster* cluster, int32_t rank) {
  Reply<absl::StatusOr<Eviction>> reply;
  cluster->coordinator()->Evict(rank, "the wrong model", reply.callback());
  cluster->Settle();
  EXPECT_TRUE(reply.Get().ok()) << reply.Get().status();
}

// How a worker goes.
struct End {
  const char* name;
  std::function<void(LocalCluster*, LocalWorker*)> go;
};

const End kEnds[] = {
    {"Evicted", [](LocalCluster* cluster,
                   LocalWorker* worker) { Evict(cluster, worker->rank()); }},
    {"Left",
     [](LocalCluster*, LocalWorker* worker) {
       EXPECT_EQ(worker->Leave(), absl::OkStatus());
     }},
    {"LeaseRanOut", [](LocalCluster* cluster,
                       LocalWorker*) { cluster->Advance(absl::Seconds(31)); }},
    {"Disconnected",
     [](LocalCluster* cluster, LocalWorker* worker) {
       const auto stream = cluster->coordinator()->Attend(
           worker->joined().epoch, worker->session(), [](const JobEvent&) {});
       ASSERT_TRUE(stream.ok());
       cluster->coordinator()->Detach(*stream);
       cluster->Advance(absl::Seconds(6));
     }},
};

class UnheldManifestTest : public testing::TestWithParam<std::pair<int, bool>> {
 protected:
  UnheldManifestTest()
      : cluster_(Options(GetParam().first, GetParam().second)) {}

  void ExpectForgotten() {
    for (int k = 0; k < cluster_.num_shards(); ++k) {
      EXPECT_EQ(cluster_.engine(k)->Status().memory_planned_bytes, 0) << k;
    }
    EXPECT_TRUE(
        absl::IsFailedPrecondition(cluster_.coordinator()->Observe().status()));
  }
  // Another worker, with another manifest, has the job.
  void ExpectGoesOn(int32_t rank) {
    LocalWorker worker = Joined(&cluster_, rank, Right());
    EXPECT_TRUE(worker.joined().seed_role);
    const Tensors seed = RandomTensors(Right(), 1);
    ASSERT_EQ(worker.Seed(seed), absl::OkStatus());
    const absl::StatusOr<Tensors> pulled = cluster_.Pull(0);
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    EXPECT_TRUE(SameBits(*pulled, seed));
    const auto reply = worker.Contribute(0, RandomTensors(Right(), 2));
    ASSERT_TRUE(reply.ok()) << reply.status();
    cluster_.Settle();
    ASSERT_TRUE(reply->called());
    EXPECT_EQ(reply->Get()->version, 1u);
  }

  LocalCluster cluster_;
};

TEST_P(UnheldManifestTest, GoesWithItsLastHolder) {
  for (const End& end : kEnds) {
    SCOPED_TRACE(end.name);
    LocalWorker first = Joined(&cluster_, 0, Wrong());
    EXPECT_TRUE(
        absl::IsInvalidArgument(LocalWorker(&cluster_, 1, Right()).Join()));
    end.go(&cluster_, &first);
    cluster_.Settle();
    ExpectForgotten();
  }
  ExpectGoesOn(1);
}

TEST_P(UnheldManifestTest, AlsoInTheMiddleOfItsSeed) {
  LocalWorker first = Joined(&cluster_, 0, Wrong());
  ASSERT_EQ(first.Push(0, RandomTensors(Wrong(), 3), 0, {}, PushKind::kSeed),
            absl::OkStatus());
  Evict(&cluster_, 0);
  ExpectForgotten();
  ExpectGoesOn(0);
}

// Frames that are being copied when it goes are of memory that is still there.
TEST_P(UnheldManifestTest, AFrameInTheMiddleOfACopy) {
  LocalWorker first = Joined(&cluster_, 0, Wrong());
  const ShardPlan plan = *MakeShardPlan(Wrong(), cluster_.num_shards());
  FrameHeader header = MakeFrames(first.Header(0, PushKind::kSeed), plan, 0,
                                  RandomTensors(Wrong(), 1))[0]
                           .header;
  auto landing = cluster_.engine(0)->BeginFrame(header);
  ASSERT_TRUE(landing.ok()) << landing.status();
  Evict(&cluster_, 0);
  ExpectForgotten();
  LocalWorker second = Joined(&cluster_, 1, Right());
  landing->slices[0].destination[0] = 1;
  landing->slices[0].landed = true;
  EXPECT_TRUE(absl::IsAborted(cluster_.engine(0)->EndFrame(*landing).status()));
  EXPECT_EQ(second.Seed(RandomTensors(Right(), 1)), absl::OkStatus());
}

// Who waits for the first version waits for one of that manifest.
TEST_P(UnheldManifestTest, EndsPullsOfTheFirstVersion) {
  LocalWorker first = Joined(&cluster_, 0, Wrong());
  absl::Status pulled;
  cluster_.engine(0)->Pull(
      0, 0, /*latest=*/false,
      [&](const absl::StatusOr<PublishedVersion>& version) {
        pulled = version.status();
      });
  EXPECT_EQ(first.Leave(), absl::OkStatus());
  cluster_.Settle();
  EXPECT_TRUE(absl::IsAborted(pulled)) << pulled;
  EXPECT_THAT(std::string(pulled.message()), HasSubstr("was given up"));
}

TEST_P(UnheldManifestTest, StaysWhileSomebodyHoldsIt) {
  LocalWorker first = Joined(&cluster_, 0, Right());
  LocalWorker second = Joined(&cluster_, 1, Right());
  Evict(&cluster_, 0);
  const absl::Status refused = LocalWorker(&cluster_, 2, Wrong()).Join();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("differs from the job's at tensor 0"),
                    HasSubstr("that of rank 0 (test worker 0), which came "
                              "first, and stays until all who joined with it "
                              "have left or are evicted")));
  EXPECT_EQ(second.Seed(RandomTensors(Right(), 1)), absl::OkStatus());
}

TEST_P(UnheldManifestTest, StaysWithASeededJob) {
  LocalWorker first = Joined(&cluster_, 0, Right());
  ASSERT_EQ(first.Seed(RandomTensors(Right(), 1)), absl::OkStatus());
  Evict(&cluster_, 0);
  const absl::Status refused = LocalWorker(&cluster_, 2, Wrong()).Join();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("that of rank 0 (test worker 0)"),
                    Not(HasSubstr("evicted"))));
  EXPECT_TRUE(cluster_.Pull(0).ok());
}

// A process that is started again with the model that was meant.
TEST_P(UnheldManifestTest, GoesWithTheFormerLifeOfItsOnlyHolder) {
  LocalWorker first = Joined(&cluster_, 0, Wrong());
  // A client repeats a Join that is UNAVAILABLE.
  EXPECT_TRUE(absl::IsUnavailable(LocalWorker(&cluster_, 0, Right()).Join()));
  ExpectForgotten();
  ExpectGoesOn(0);
  EXPECT_TRUE(absl::IsAborted(first.Leave()));
}

TEST_P(UnheldManifestTest, OneThatIsNoneEndsNothing) {
  LocalWorker first = Joined(&cluster_, 0, Right());
  JoinCall none;
  none.manifest = MakeManifest({{-1}});
  Reply<absl::StatusOr<JoinResult>> refused;
  cluster_.coordinator()->Join(none, refused.callback());
  cluster_.Settle();
  EXPECT_TRUE(absl::IsInvalidArgument(refused.Get().status()));
  EXPECT_EQ(first.Seed(RandomTensors(Right(), 1)), absl::OkStatus());
}

INSTANTIATE_TEST_SUITE_P(Shards, UnheldManifestTest,
                         testing::Values(std::make_pair(1, false),
                                         std::make_pair(3, false),
                                         std::make_pair(3, true)));

}  // namespace
}  // namespace agg
