// Landing rows on a shard: P5, P6 and P12.
#include <atomic>
#include <limits>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Manifest TestManifest() {
  Manifest manifest = MakeManifest({{40}, {}, {5}});
  manifest.tensors[2].optional = true;
  return manifest;
}

// Two workers on one shard, in round 0.
class LandingTest : public testing::Test {
 protected:
  LandingTest()
      : job_(MakeClusterOptions(1, 2), TestManifest(), 2),
        plan_(*MakeShardPlan(job_.manifest, 1)) {}

  ShardEngine* engine() { return job_.cluster.engine(0); }
  LocalWorker& worker(int rank) { return job_.workers[rank]; }
  Tensors Row(uint64_t seed) { return RandomTensors(job_.manifest, seed); }
  std::vector<TestFrame> Frames(int rank, uint64_t round, uint64_t seed) {
    return MakeFrames(worker(rank).Header(round), plan_, 0, Row(seed));
  }

  RunningJob job_;
  const ShardPlan plan_;
};

TEST_F(LandingTest, AcknowledgesWhenTheLastSliceHasLanded) {
  const std::vector<TestFrame> frames = Frames(0, 0, 5);
  ASSERT_EQ(frames.size(), 3u);
  for (int i : {2, 0}) {
    const auto result = LandFrame(engine(), frames[i]);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_FALSE(result->acknowledge);
  }
  EXPECT_TRUE(LandFrame(engine(), frames[1])->acknowledge);
  // A repeat of any is acknowledged and dropped.
  const int64_t landed = engine()->Status().push_bytes;
  const auto repeat = LandFrame(engine(), frames[0]);
  EXPECT_TRUE(repeat->acknowledge);
  EXPECT_FALSE(repeat->closed);
  EXPECT_EQ(engine()->Status().push_bytes, landed);
  EXPECT_EQ(engine()->Status().duplicate_bytes, 160);
}

// P5: a row is one gradient or nothing.
TEST_F(LandingTest, ALandedSliceIsNeverWrittenAgain) {
  ASSERT_EQ(worker(0).Push(0, Row(5)), absl::OkStatus());
  const absl::Status refused = worker(0).Push(0, Row(6));
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("slice 0 of round 0"),
                    HasSubstr("push another one with a higher `attempt`")));
  worker(0).Commit(0);
  ASSERT_TRUE(worker(1).Contribute(0, Row(5)).ok());
  // The mean of two equal rows is the row.
  const Tensors start = *job_.cluster.Pull(0);
  const Tensors end = *job_.cluster.Pull(1);
  for (size_t t = 0; t < start.size(); ++t) {
    for (size_t e = 0; e < start[t].size(); ++e) {
      EXPECT_EQ(end[t][e], start[t][e] - 0.5f * Row(5)[t][e]);
    }
  }
}

TEST_F(LandingTest, AHalfOfAnotherGradientIsRefusedToo) {
  ASSERT_TRUE(LandFrame(engine(), Frames(0, 0, 5)[0]).ok());
  const std::vector<TestFrame> other = Frames(0, 0, 6);
  EXPECT_EQ(LandFrame(engine(), other[0]).status().code(),
            absl::StatusCode::kFailedPrecondition);
  // The row keeps what it had, and the first gradient can be completed.
  EXPECT_EQ(worker(0).Push(0, Row(5)), absl::OkStatus());
}

TEST_F(LandingTest, AHigherAttemptReplacesTheGradient) {
  ASSERT_TRUE(LandFrame(engine(), Frames(0, 0, 5)[0]).ok());
  bool acknowledged = false;
  for (TestFrame frame : Frames(0, 0, 6)) {
    frame.header.attempt = 1;
    const auto result = LandFrame(engine(), frame);
    ASSERT_TRUE(result.ok()) << result.status();
    acknowledged = result->acknowledge;
  }
  EXPECT_TRUE(acknowledged);
  const absl::Status replaced =
      LandFrame(engine(), Frames(0, 0, 5)[1]).status();
  EXPECT_EQ(replaced.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(replaced.message(), HasSubstr("replaced by attempt 1"));
  // A Commit of the gradient that was replaced is of one that is not there.
  EXPECT_EQ(worker(0).Commit(0).Get().status().code(),
            absl::StatusCode::kFailedPrecondition);
  CommitCall commit;
  commit.epoch = worker(0).joined().epoch;
  commit.session = worker(0).session();
  commit.attempt = 1;
  OutcomeReply reply;
  job_.cluster.coordinator()->Commit(commit, reply.callback());
  ASSERT_TRUE(worker(1).Contribute(0, Row(6)).ok());
  const Tensors start = *job_.cluster.Pull(0);
  EXPECT_TRUE(reply.Get()->included);
  const Tensors end = *job_.cluster.Pull(1);
  for (size_t t = 0; t < start.size(); ++t) {
    for (size_t e = 0; e < start[t].size(); ++e) {
      EXPECT_EQ(end[t][e], start[t][e] - 0.5f * Row(6)[t][e]);
    }
  }
}

TEST_F(LandingTest, ADuplicateOfALandingSliceWaits) {
  const TestFrame frame = Frames(0, 0, 5)[0];
  absl::StatusOr<FrameLanding> first = engine()->BeginFrame(frame.header);
  ASSERT_TRUE(first.ok());
  std::atomic<bool> first_ended{false};
  std::thread duplicate([&] {
    const auto second = engine()->BeginFrame(frame.header);
    EXPECT_TRUE(first_ended);
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(second->slices[0].destination, nullptr);  // to be skipped
    EXPECT_TRUE(engine()->EndFrame(*second).ok());
  });
  CopyPayload(frame, &*first);
  first_ended = true;
  EXPECT_TRUE(engine()->EndFrame(*first).ok());
  duplicate.join();
}

TEST_F(LandingTest, ADuplicateTakesOverWhenTheFirstCopyFails) {
  const TestFrame frame = Frames(0, 0, 5)[0];
  absl::StatusOr<FrameLanding> first = engine()->BeginFrame(frame.header);
  ASSERT_TRUE(first.ok());
  std::thread duplicate([&] {
    const auto result = LandFrame(engine(), frame);
    EXPECT_TRUE(result.ok()) << result.status();
  });
  EXPECT_TRUE(absl::IsDataLoss(engine()->EndFrame(*first).status()));
  duplicate.join();
  EXPECT_EQ(engine()->Status().push_bytes, 160 + 184);  // and the seed
}

TEST_F(LandingTest, ManyThreadsPushTheSameRow) {
  const std::vector<TestFrame> frames = Frames(0, 0, 5);
  std::vector<std::thread> threads;
  std::atomic<int> num_acknowledged{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 3; ++i) {
        const auto result = LandFrame(engine(), frames[(i + t) % 3]);
        ASSERT_TRUE(result.ok()) << result.status();
        if (result->acknowledge) ++num_acknowledged;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(num_acknowledged, 1);
  EXPECT_EQ(engine()->Status().push_bytes, 2 * 184);  // with the seed
}

TEST_F(LandingTest, ACorruptSliceIsPushedAgain) {
  std::vector<TestFrame> frames = Frames(0, 0, 5);
  for (const TestFrame& frame : {frames[1], frames[2]}) {
    ASSERT_TRUE(LandFrame(engine(), frame).ok());
  }
  TestFrame corrupt = frames[0];
  corrupt.payload[3] ^= 1;
  const absl::Status status = LandFrame(engine(), corrupt).status();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(status.message(), HasSubstr("slice 0"));
  EXPECT_EQ(engine()->Status().crc_errors, 1);
  EXPECT_TRUE(LandFrame(engine(), frames[0])->acknowledge);
}

TEST_F(LandingTest, AnAbsentOptionalTensorCountsAsZero) {
  // The row's memory holds another round's values first.
  for (int rank : {0, 1}) ASSERT_TRUE(worker(rank).Contribute(0, Row(5)).ok());
  job_.cluster.Settle();
  for (int rank : {0, 1}) {
    ASSERT_EQ(worker(rank).Push(1, Row(6), 0, {2}), absl::OkStatus());
    worker(rank).Commit(1);
  }
  const Tensors before = *job_.cluster.Pull(1);
  const Tensors after = *job_.cluster.Pull(2);
  EXPECT_NE(before[0], after[0]);
  EXPECT_EQ(before[2], after[2]);
}

TEST_F(LandingTest, RefusesWhatIsNotOfTheOpenRound) {
  const auto error = [&](FrameHeader header) {
    return engine()->BeginFrame(std::move(header)).status();
  };
  const FrameHeader good = Frames(0, 0, 5)[0].header;
  FrameHeader header = good;
  header.round = 1;
  EXPECT_EQ(error(header).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(error(header).message(), HasSubstr("current version 0"));
  header = good;
  header.epoch -= 1;
  EXPECT_TRUE(absl::IsAborted(error(header)));
  EXPECT_THAT(error(header).message(), HasSubstr("current epoch "));
  header = good;
  header.session += 100;  // nobody has that one
  EXPECT_TRUE(absl::IsNotFound(error(header)));
  header = good;
  header.crc32c.clear();
  EXPECT_TRUE(absl::IsInvalidArgument(error(header)));
  header = good;
  header.kind = PushKind::kSeed;
  EXPECT_TRUE(absl::IsAlreadyExists(error(header)));
}

TEST_F(LandingTest, ALatePushIsAcknowledgedAsClosed) {
  for (int rank : {0, 1}) ASSERT_TRUE(worker(rank).Contribute(0, Row(5)).ok());
  job_.cluster.Settle();
  const int64_t landed = engine()->Status().push_bytes;
  const auto result = LandFrame(engine(), Frames(1, 0, 6)[0]);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->acknowledge);
  EXPECT_TRUE(result->closed);
  EXPECT_EQ(engine()->Status().push_bytes, landed);
}

TEST_F(LandingTest, ASessionSupersededInMidPushLosesItsSlices) {
  const std::vector<TestFrame> frames = Frames(0, 0, 5);
  ASSERT_TRUE(LandFrame(engine(), frames[0]).ok());
  absl::StatusOr<FrameLanding> under_way =
      engine()->BeginFrame(frames[1].header);
  ASSERT_TRUE(under_way.ok());

  LocalWorker successor = Joined(&job_.cluster, 0, job_.manifest);
  EXPECT_EQ(successor.joined().first_round, 0u);
  EXPECT_THAT(LandFrame(engine(), frames[2]).status().message(),
              HasSubstr("superseded"));
  // The successor waits for the copy under way, then has the row to itself.
  const Tensors row = Row(7);
  std::thread pusher(
      [&] { EXPECT_EQ(successor.Push(0, row), absl::OkStatus()); });
  CopyPayload(frames[1], &*under_way);
  const auto ended = engine()->EndFrame(*under_way);
  ASSERT_TRUE(ended.ok());
  EXPECT_FALSE(ended->acknowledge);
  pusher.join();

  const OutcomeReply outcome = successor.Commit(0);
  ASSERT_TRUE(worker(1).Contribute(0, row).ok());
  const Tensors start = *job_.cluster.Pull(0);
  const Tensors end = *job_.cluster.Pull(1);
  EXPECT_TRUE(outcome.Get()->included);
  EXPECT_EQ(end[0][0], start[0][0] - 0.5f * row[0][0]);
  EXPECT_EQ(end[1][0], start[1][0] - 0.5f * row[1][0]);
}

TEST_F(LandingTest, ACommittedRowStandsAgainstItsRanksNextSession) {
  const OutcomeReply first = *worker(0).Contribute(0, Row(5));
  LocalWorker successor = Joined(&job_.cluster, 0, job_.manifest);
  EXPECT_TRUE(successor.joined().committed);
  EXPECT_EQ(successor.joined().first_round, 1u);
  EXPECT_TRUE(absl::IsAborted(first.Get().status()));
  const absl::Status early = successor.Push(0, Row(9));
  EXPECT_EQ(early.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(early.message(), HasSubstr("takes part from round 1"));

  const OutcomeReply second = *worker(1).Contribute(0, Row(5));
  job_.cluster.Settle();
  EXPECT_THAT(second.Get()->ranks, ElementsAre(0, 1));
  EXPECT_EQ((*job_.cluster.Pull(1))[0][0],
            (*job_.cluster.Pull(0))[0][0] - 0.5f * Row(5)[0][0]);
  EXPECT_EQ(successor.Push(1, Row(9)), absl::OkStatus());
}

// incomplete_row_test.cc has what other shards do not have.
TEST_F(LandingTest, ACommitWithoutARowIsRefused) {
  const absl::Status refused = worker(0).Commit(0).Get().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("incomplete on shard 0"));
}

// The seed has a row of its own: a gradient row of rank 0 is not a seed.
TEST(SeedLandingTest, OnlyTheSeederLandsAndNothingElseLandsBefore) {
  LocalCluster cluster(MakeClusterOptions(2, 2));
  const Manifest manifest = TestManifest();
  LocalWorker seeder = Joined(&cluster, 0, manifest);
  LocalWorker other = Joined(&cluster, 1, manifest);
  const Tensors values = RandomTensors(manifest, 3);
  EXPECT_EQ(other.Push(0, values).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(
      absl::IsAlreadyExists(other.Push(0, values, 0, {}, PushKind::kSeed)));
  // The role passes while the first seed is half landed.
  const ShardPlan plan = *MakeShardPlan(manifest, 2);
  const std::vector<TestFrame> half = MakeFrames(
      seeder.Header(0, PushKind::kSeed), plan, 0, RandomTensors(manifest, 4));
  ASSERT_TRUE(LandFrame(cluster.engine(0), half[0]).ok());
  ASSERT_EQ(seeder.Leave(), absl::OkStatus());
  ASSERT_EQ(other.Seed(values), absl::OkStatus());
  EXPECT_EQ(*cluster.Pull(0), values);
}

}  // namespace
}  // namespace agg
