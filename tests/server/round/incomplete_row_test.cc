// Workers that commit rows of which a shard lacks slices: they alone are left
// out of the round (P5, P6, P9).
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/crc32c.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int kNumShards = 3;

// Every shard has one slice; there is an empty tensor, too.
Manifest TestManifest() { return MakeManifest({{40}, {7}, {}, {0}}); }

Tensors Row(uint64_t seed) { return RandomTensors(TestManifest(), seed); }

ClusterOptions Options(const std::string& rule = "mean") {
  return MakeClusterOptions(kNumShards, 3, rule);
}

class IncompleteRowTest : public testing::Test {
 protected:
  IncompleteRowTest() : job_(Options(), TestManifest(), 3) {}

  LocalCluster& cluster() { return job_.cluster; }
  FaultyPeer* peer(int ordinal) { return job_.cluster.peer(ordinal); }
  LocalWorker& worker(int rank) { return job_.workers[rank]; }
  OutcomeReply Contribute(int rank, uint64_t round) {
    return *worker(rank).Contribute(round, Row(10 * round + rank));
  }
  // Commits though the other shards have nothing.
  OutcomeReply ContributeTo(const std::set<int>& shards, int rank,
                            uint64_t round) {
    EXPECT_EQ(worker(rank).PushTo(shards, worker(rank).Header(round),
                                  Row(10 * round + rank)),
              absl::OkStatus());
    return worker(rank).Commit(round);
  }

  RunningJob job_;
};

TEST_F(IncompleteRowTest, ItsRankAloneIsLeftOut) {
  const OutcomeReply first = Contribute(0, 0);
  const OutcomeReply broken = ContributeTo({0, 2}, 1, 0);
  const OutcomeReply last = Contribute(2, 0);
  cluster().Settle();
  for (const OutcomeReply& reply : {first, broken, last}) {
    ASSERT_TRUE(reply.Get().ok()) << reply.Get().status();
    EXPECT_EQ(reply.Get()->kind, OutcomeKind::kApplied);
    EXPECT_THAT(reply.Get()->ranks, ElementsAre(0, 2));
    EXPECT_THAT(reply.Get()->excluded_ranks, ElementsAre(1));
    EXPECT_THAT(reply.Get()->message,
                AllOf(HasSubstr("not completely pushed: rank 1 (shard 1)"),
                      Not(HasSubstr("non-finite"))));
  }
  EXPECT_TRUE(first.Get()->included);
  EXPECT_FALSE(broken.Get()->included);
  EXPECT_TRUE(last.Get()->included);

  const Tensors start = *cluster().Pull(0);
  const Tensors end = *cluster().Pull(1);
  for (size_t t = 0; t < start.size(); ++t) {
    for (size_t e = 0; e < start[t].size(); ++e) {
      const double mean = 0.5 * Row(0)[t][e] + 0.5 * Row(2)[t][e];
      EXPECT_EQ(end[t][e], start[t][e] - 0.5f * static_cast<float>(mean));
    }
  }

  ASSERT_EQ(cluster().reports().size(), 1u);
  const RoundReport report = cluster().reports()[0];
  EXPECT_EQ(report.rows.size(), 3u);
  ASSERT_EQ(report.incomplete_rows.size(), 1u);
  EXPECT_EQ(report.incomplete_rows[0].rank, 1);
  EXPECT_EQ(report.incomplete_rows[0].shard, 1);
  EXPECT_THAT(report.decision.excluded_ranks, ElementsAre(1));
  EXPECT_THAT(report.decision.coefficients, Each(ElementsAre(0.5, 0.0, 0.5)));
}

TEST_F(IncompleteRowTest, ItTakesPartInTheNextRound) {
  Contribute(0, 0);
  ContributeTo({0}, 1, 0);
  Contribute(2, 0);
  cluster().Settle();
  std::vector<OutcomeReply> replies;
  for (int rank = 0; rank < 3; ++rank) replies.push_back(Contribute(rank, 1));
  cluster().Settle();
  EXPECT_TRUE(replies[1].Get()->included);
  EXPECT_THAT(replies[1].Get()->ranks, ElementsAre(0, 1, 2));
  EXPECT_THAT(replies[1].Get()->message, IsEmpty());
}

TEST_F(IncompleteRowTest, SeveralCostOneMoreClose) {
  const OutcomeReply good = Contribute(0, 0);
  ContributeTo({0, 1}, 1, 0);
  ContributeTo({0, 2}, 2, 0);
  cluster().Settle();
  EXPECT_THAT(good.Get()->ranks, ElementsAre(0));
  EXPECT_THAT(good.Get()->message, HasSubstr("rank 1 (shard 2), rank 2"));
  EXPECT_THAT(
      peer(0)->phases(),
      ElementsAre(PhaseKind::kPublish, PhaseKind::kClose, PhaseKind::kAbandon,
                  PhaseKind::kClose, PhaseKind::kUpdate));
}

TEST_F(IncompleteRowTest, WithNoOtherTheRoundIsSkipped) {
  std::vector<OutcomeReply> replies;
  for (int rank = 0; rank < 3; ++rank) {
    replies.push_back(ContributeTo({0}, rank, 0));
  }
  cluster().Settle();
  EXPECT_EQ(replies[0].Get()->kind, OutcomeKind::kSkipped);
  EXPECT_THAT(replies[0].Get()->ranks, IsEmpty());
  EXPECT_THAT(replies[0].Get()->excluded_ranks, ElementsAre(0, 1, 2));
  EXPECT_THAT(replies[0].Get()->message,
              HasSubstr("every committed row is left out"));
  EXPECT_EQ(*cluster().Pull(1), *cluster().Pull(0));
  for (int rank = 0; rank < 3; ++rank) Contribute(rank, 1);
  EXPECT_TRUE(cluster().Pull(2).ok());
}

// Frames that come after the first answer make no difference: all shards go by
// what the coordinator has decided.
TEST_F(IncompleteRowTest, StaysOutThoughItsFramesArriveMeanwhile) {
  const OutcomeReply good = Contribute(0, 0);
  ContributeTo({0, 1}, 1, 0);
  Contribute(2, 0);
  int num_closes = 0;
  peer(2)->BeforePhase([&](const Phase& phase) {
    if (phase.kind != PhaseKind::kClose || ++num_closes != 2) return;
    EXPECT_EQ(worker(1).PushTo({2}, worker(1).Header(0), Row(1)),
              absl::OkStatus());
  });
  cluster().Settle();
  EXPECT_EQ(num_closes, 2);
  EXPECT_THAT(good.Get()->ranks, ElementsAre(0, 2));
}

TEST_F(IncompleteRowTest, AFailureOnTopIsTriedAgain) {
  const OutcomeReply good = Contribute(0, 0);
  ContributeTo({0, 1}, 1, 0);
  Contribute(2, 0);
  int num_closes = 0;
  peer(2)->BeforePhase([&](const Phase& phase) {
    if (phase.kind != PhaseKind::kClose || ++num_closes != 1) return;
    peer(2)->FailNext(PhaseKind::kClose, absl::InternalError("injected"));
  });
  cluster().Settle();
  EXPECT_THAT(good.Get()->ranks, ElementsAre(0, 2));
  EXPECT_EQ(cluster().reports()[0].incomplete_rows.size(), 1u);
}

TEST_F(IncompleteRowTest, IsNamedInARoundThatFailsForAnotherReason) {
  const OutcomeReply good = Contribute(0, 0);
  ContributeTo({0, 1}, 1, 0);
  Contribute(2, 0);
  peer(2)->BeforePhase([&](const Phase& phase) {
    // Every second Close: the one without the incomplete row.
    if (phase.kind != PhaseKind::kClose) return;
    peer(2)->FailNext(PhaseKind::kClose, absl::InternalError("injected"));
  });
  cluster().Settle();
  EXPECT_EQ(good.Get()->kind, OutcomeKind::kSkipped);
  EXPECT_THAT(good.Get()->message,
              AllOf(HasSubstr("injected"), HasSubstr("rank 1 (shard 2)")));
  EXPECT_THAT(good.Get()->excluded_ranks, ElementsAre(1));
}

TEST_F(IncompleteRowTest, ACommitIsRefusedWhereTheCoordinatorsShardKnows) {
  Contribute(0, 0);
  Contribute(2, 0);
  const absl::Status refused = ContributeTo({1, 2}, 1, 0).Get().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("round 0"), HasSubstr("incomplete on shard 0")));
  cluster().Settle();
  EXPECT_EQ(cluster().Status().version, 0u);
  EXPECT_THAT(cluster().Status().missing_ranks, ElementsAre(1));
  const OutcomeReply again = Contribute(1, 0);
  cluster().Settle();
  EXPECT_TRUE(again.Get()->included);
  // The shard is not asked about late and repeated commits.
  EXPECT_TRUE(worker(1).Commit(0).Get()->included);
}

// --- One gradient or nothing -------------------------------------------------

// The worker's word about its bytes is wrong on one shard: what landed there
// is of another gradient.
TEST_F(IncompleteRowTest, ARowOfTwoGradientsIsLeftOut) {
  const ShardPlan plan = *MakeShardPlan(TestManifest(), kNumShards);
  const auto commit = [&](int rank, int other_shard) {
    CommitCall call;
    call.epoch = worker(rank).joined().epoch;
    call.session = worker(rank).session();
    for (int shard = 0; shard < kNumShards; ++shard) {
      const Tensors row = Row(rank);
      std::vector<uint32_t> slices;
      for (const TestFrame& frame :
           MakeFrames(worker(rank).Header(0), plan, shard, row)) {
        slices.push_back(frame.header.crc32c[0]);
      }
      call.row_crc32c.push_back(Crc32cOfWords(slices));
      EXPECT_EQ(worker(rank).PushTo({shard}, worker(rank).Header(0),
                                    shard == other_shard ? Row(99) : row),
                absl::OkStatus());
    }
    OutcomeReply reply;
    cluster().coordinator()->Commit(call, reply.callback());
    return reply;
  };
  const OutcomeReply first = commit(0, -1);
  const OutcomeReply mixed = commit(1, 2);
  const OutcomeReply last = Contribute(2, 0);  // without checksums
  cluster().Settle();
  EXPECT_THAT(first.Get()->ranks, ElementsAre(0, 2));
  EXPECT_TRUE(first.Get()->included);
  EXPECT_FALSE(mixed.Get()->included);
  EXPECT_THAT(mixed.Get()->excluded_ranks, ElementsAre(1));
  EXPECT_EQ(mixed.Get()->message,
            "excluded, pushed with other bytes than the commit's checksum "
            "says: rank 1 (shard 2)");
}

// Half of a new attempt has taken the row of a committed one.
TEST_F(IncompleteRowTest, ARowWhoseNextAttemptHasBegunIsLeftOut) {
  Contribute(0, 0);
  const OutcomeReply replaced = Contribute(1, 0);
  const ShardPlan plan = *MakeShardPlan(TestManifest(), kNumShards);
  TestFrame next = MakeFrames(worker(1).Header(0), plan, 1, Row(99))[0];
  next.header.attempt = 1;
  ASSERT_TRUE(LandFrame(cluster().engine(1), next).ok());
  const OutcomeReply good = Contribute(2, 0);
  cluster().Settle();
  EXPECT_THAT(good.Get()->ranks, ElementsAre(0, 2));
  EXPECT_FALSE(replaced.Get()->included);
}

TEST_F(IncompleteRowTest, ChecksumsOfAnotherNumberOfShardsAreRefused) {
  CommitCall call;
  call.epoch = worker(0).joined().epoch;
  call.session = worker(0).session();
  call.row_crc32c = {1, 2};
  OutcomeReply reply;
  cluster().coordinator()->Commit(call, reply.callback());
  EXPECT_EQ(reply.Get().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(IncompleteSeedTest, IsRefusedWhereTheCoordinatorsShardKnows) {
  LocalCluster cluster(Options());
  LocalWorker worker = Joined(&cluster, 0, TestManifest());
  ASSERT_EQ(worker.PushTo({1, 2}, worker.Header(0, PushKind::kSeed), Row(1)),
            absl::OkStatus());
  const absl::Status refused =
      worker.Commit(0, RowInfo(), PushKind::kSeed).Get().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("commit of the seed"));
  cluster.Settle();
  EXPECT_EQ(worker.Seed(Row(1)), absl::OkStatus());
  EXPECT_EQ(*cluster.Pull(0), Row(1));
}

// --- The same bits as a round without that worker ----------------------------

struct Kind {
  const char* rule;
  OptimizerKind optimizer;
  bool compensated;  // every Gram is
};

class WithoutItTest : public testing::TestWithParam<Kind> {
 protected:
  static ClusterOptions ClusterOf(const Kind& kind) {
    ClusterOptions options = Options(kind.rule);
    OptimizerOptions optimizer;
    optimizer.kind = kind.optimizer;
    SetOptimizer(optimizer, &options);
    if (kind.compensated) options.coordinator.combine.rule.kappa_limit = 0.0;
    return options;
  }
  static Tensors RowOf(int rank) { return Row(static_cast<uint64_t>(rank)); }
};

TEST_P(WithoutItTest, HasTheSameBits) {
  RunningJob broken(ClusterOf(GetParam()), TestManifest(), 3);
  RunningJob smooth(ClusterOf(GetParam()), TestManifest(), 3);
  ASSERT_TRUE(broken.workers[0].Contribute(0, RowOf(0)).ok());
  ASSERT_EQ(
      broken.workers[1].PushTo({0, 1}, broken.workers[1].Header(0), RowOf(1)),
      absl::OkStatus());
  broken.workers[1].Commit(0);
  ASSERT_TRUE(broken.workers[2].Contribute(0, RowOf(2)).ok());
  broken.cluster.Settle();
  for (const int rank : {0, 2}) {
    ASSERT_TRUE(smooth.workers[rank].Contribute(0, RowOf(rank)).ok());
  }
  ASSERT_EQ(smooth.workers[1].Leave(), absl::OkStatus());
  const absl::StatusOr<Tensors> expected = smooth.cluster.Pull(1);
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_NE(*expected, *smooth.cluster.Pull(0));
  EXPECT_EQ(*broken.cluster.Pull(1), *expected);
  const RoundReport report = broken.cluster.reports()[0];
  EXPECT_EQ(report.decision.compensated, GetParam().compensated);
  for (const std::vector<double>& segment : report.decision.coefficients) {
    EXPECT_EQ(segment[1], 0.0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    AllKinds, WithoutItTest,
    testing::Values(Kind{"mean", OptimizerKind::kSgd, false},
                    Kind{"adasum", OptimizerKind::kSgd, false},
                    Kind{"adasum", OptimizerKind::kSgd, true},
                    Kind{"adacons", OptimizerKind::kAdam, false},
                    Kind{"adasum", OptimizerKind::kLamb, false}));

}  // namespace
}  // namespace agg
