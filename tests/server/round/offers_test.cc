// Rounds that shards offer to close before they are asked to (P44): the same
// bits with one phase less, and whatever an offer does not fit costs nothing.
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

constexpr int kNumShards = 3;

// Every shard has one slice; there is an empty tensor, too.
Manifest TestManifest() { return MakeManifest({{40}, {7}, {}, {0}}); }

Tensors Row(uint64_t seed) { return RandomTensors(TestManifest(), seed); }

ClusterOptions Options(const std::string& rule = "mean") {
  ClusterOptions options = MakeClusterOptions(kNumShards, 3, rule);
  options.offers = true;
  // Nothing takes the turn but the coordinator's phases.
  options.shard.early_gram = false;
  options.shard.background = false;
  return options;
}

// --- The same bits -----------------------------------------------------------

struct Kind {
  const char* rule;
  OptimizerKind optimizer;
  bool compensated;  // every Gram is
  bool replicated;
};

class SameBitsTest : public testing::TestWithParam<Kind> {
 protected:
  static ClusterOptions ClusterOf(const Kind& kind) {
    ClusterOptions options = Options(kind.rule);
    OptimizerOptions optimizer;
    optimizer.kind = kind.optimizer;
    SetOptimizer(optimizer, &options);
    options.shard.replicated = kind.replicated;
    options.coordinator.replicated = kind.replicated;
    if (kind.compensated) options.coordinator.combine.rule.kappa_limit = 0.0;
    return options;
  }
};

TEST_P(SameBitsTest, WithoutAClose) {
  ClusterOptions plain = ClusterOf(GetParam());
  plain.offers = false;
  RunningJob asked(plain, TestManifest(), 3);
  RunningJob offered(ClusterOf(GetParam()), TestManifest(), 3);
  for (uint64_t round = 0; round < 3; ++round) {
    asked.RunRound(round);
    offered.RunRound(round);
  }
  EXPECT_EQ(*offered.cluster.Pull(3), *asked.cluster.Pull(3));
  for (int shard = 0; shard < kNumShards; ++shard) {
    EXPECT_THAT(asked.cluster.peer(shard)->phases(),
                Contains(PhaseKind::kClose));
    EXPECT_THAT(offered.cluster.peer(shard)->phases(),
                Not(Contains(PhaseKind::kClose)));
  }
  EXPECT_EQ(offered.cluster.reports()[2].decision.compensated,
            GetParam().compensated);
}

INSTANTIATE_TEST_SUITE_P(
    AllKinds, SameBitsTest,
    testing::Values(Kind{"mean", OptimizerKind::kSgd, false, false},
                    Kind{"adasum", OptimizerKind::kAdam, false, false},
                    Kind{"adasum", OptimizerKind::kSgd, true, false},
                    Kind{"adacons", OptimizerKind::kLamb, false, false},
                    Kind{"adasum", OptimizerKind::kLamb, true, true},
                    Kind{"mean", OptimizerKind::kAdam, false, true}));

// --- Offers that do not fit --------------------------------------------------

class OffersTest : public testing::Test {
 protected:
  explicit OffersTest(const ClusterOptions& options = Options())
      : job_(options, TestManifest(), 3) {}

  LocalCluster& cluster() { return job_.cluster; }
  LocalWorker& worker(int rank) { return job_.workers[rank]; }
  // Of rank's row of round 0, and of its next attempt.
  static Tensors RowOf(int rank, uint32_t attempt = 0) {
    return Row(10 * attempt + static_cast<uint64_t>(rank) + 1);
  }
  void Push(int rank, uint32_t attempt = 0,
            const std::set<int>& shards = {0, 1, 2}) {
    FrameHeader header = worker(rank).Header(0);
    header.attempt = attempt;
    ASSERT_EQ(worker(rank).PushTo(shards, header, RowOf(rank, attempt)),
              absl::OkStatus());
  }
  OutcomeReply Commit(int rank, uint32_t attempt = 0) {
    OutcomeReply reply;
    CommitCall call;
    call.epoch = worker(rank).joined().epoch;
    call.session = worker(rank).session();
    call.attempt = attempt;
    cluster().coordinator()->Commit(call, reply.callback());
    return reply;
  }
  std::vector<PhaseKind> PhasesOf(int shard) {
    return cluster().peer(shard)->phases();
  }
  // Version 1 is that of these rows with "mean".
  void ExpectMeanOf(const std::vector<Tensors>& rows) {
    const Tensors start = *cluster().Pull(0);
    const absl::StatusOr<Tensors> end = cluster().Pull(1);
    ASSERT_TRUE(end.ok()) << end.status();
    const double weight = 1.0 / static_cast<double>(rows.size());
    for (size_t t = 0; t < start.size(); ++t) {
      for (size_t e = 0; e < start[t].size(); ++e) {
        double mean = 0.0;
        for (const Tensors& row : rows) mean += weight * row[t][e];
        EXPECT_EQ((*end)[t][e], start[t][e] - 0.5f * static_cast<float>(mean));
      }
    }
  }

  RunningJob job_;
};

TEST_F(OffersTest, ARowThatOneShardLacksIsLeftOut) {
  Push(0);
  Push(1, 0, {0, 2});
  Push(2);
  const OutcomeReply reply = Commit(0);
  const OutcomeReply broken = Commit(1);
  Commit(2);
  cluster().Settle();
  EXPECT_THAT(reply.Get()->ranks, ElementsAre(0, 2));
  EXPECT_FALSE(broken.Get()->included);
  ExpectMeanOf({RowOf(0), RowOf(2)});
  // Shard 0 has offered, shard 1 could not; then all are asked.
  EXPECT_THAT(PhasesOf(0), ElementsAre(PhaseKind::kPublish, PhaseKind::kAbandon,
                                       PhaseKind::kClose, PhaseKind::kUpdate));
  EXPECT_THAT(PhasesOf(1), ElementsAre(PhaseKind::kPublish, PhaseKind::kClose,
                                       PhaseKind::kAbandon, PhaseKind::kClose,
                                       PhaseKind::kUpdate));
}

TEST_F(OffersTest, ARowWithOtherBytesThanItsCommitIsLeftOut) {
  for (int rank = 0; rank < 3; ++rank) Push(rank);
  CommitCall call;
  call.epoch = worker(0).joined().epoch;
  call.session = worker(0).session();
  call.row_crc32c = {1, 2, 3};
  OutcomeReply other;
  cluster().coordinator()->Commit(call, other.callback());
  Commit(1);
  Commit(2);
  cluster().Settle();
  EXPECT_THAT(other.Get()->excluded_ranks, ElementsAre(0));
  ExpectMeanOf({RowOf(1), RowOf(2)});
}

TEST_F(OffersTest, ARowWithoutACommitIsLeftOutWhenItsWorkerGoes) {
  for (int rank = 0; rank < 3; ++rank) Push(rank);
  Commit(0);
  const OutcomeReply reply = Commit(2);
  ASSERT_EQ(worker(1).Leave(), absl::OkStatus());
  cluster().Settle();
  EXPECT_THAT(reply.Get()->ranks, ElementsAre(0, 2));
  ExpectMeanOf({RowOf(0), RowOf(2)});
  EXPECT_THAT(PhasesOf(1), Contains(PhaseKind::kClose));
}

TEST_F(OffersTest, ACommittedRowStaysWhenItsWorkerIsEvicted) {
  for (int rank = 0; rank < 3; ++rank) Push(rank);
  Commit(1);
  Commit(0);
  cluster().coordinator()->Evict(1, "test", [](absl::StatusOr<Eviction>) {});
  cluster().Settle();
  const OutcomeReply reply = Commit(2);
  cluster().Settle();
  EXPECT_THAT(reply.Get()->ranks, ElementsAre(0, 1, 2));
  ExpectMeanOf({RowOf(0), RowOf(1), RowOf(2)});
  EXPECT_THAT(PhasesOf(1), Not(Contains(PhaseKind::kClose)));
}

TEST_F(OffersTest, ARowOfARankWithANewSessionIsNotTheOffered) {
  for (int rank = 0; rank < 3; ++rank) Push(rank);
  ASSERT_EQ(worker(1).Join(), absl::OkStatus());  // what it pushed is dropped
  Commit(0);
  Commit(2);
  cluster().Settle();
  EXPECT_TRUE(absl::IsUnavailable(cluster().Pull(1).status()));
  Push(1, 1);
  const OutcomeReply reply = Commit(1, 1);
  cluster().Settle();
  EXPECT_TRUE(reply.Get()->included);
  ExpectMeanOf({RowOf(0), RowOf(1, 1), RowOf(2)});
}

TEST_F(OffersTest, AHigherAttemptThatIsCommittedCounts) {
  for (int rank = 0; rank < 3; ++rank) Push(rank);
  Push(1, 1);
  const OutcomeReply reply = Commit(1, 1);
  Commit(0);
  Commit(2);
  cluster().Settle();
  EXPECT_TRUE(reply.Get()->included);
  ExpectMeanOf({RowOf(0), RowOf(1, 1), RowOf(2)});
  EXPECT_THAT(PhasesOf(1), Contains(PhaseKind::kClose));
}

// It lands, on some shards or all, while the round is on its way with the one
// before.
TEST_F(OffersTest, AHigherAttemptThatComesLaterTakesNothingAway) {
  for (int rank = 0; rank < 3; ++rank) Push(rank);
  const OutcomeReply reply = Commit(1);
  Commit(0);
  Commit(2);
  Push(1, 1, {1, 2});
  Push(2, 1, {0});
  cluster().Settle();
  EXPECT_TRUE(reply.Get()->included);
  EXPECT_THAT(reply.Get()->excluded_ranks, IsEmpty());
  ExpectMeanOf({RowOf(0), RowOf(1), RowOf(2)});
  job_.RunRound(1);
  EXPECT_TRUE(cluster().Pull(2).ok());
}

TEST_F(OffersTest, AFailureBeforeCoefficientsIsTriedAgainWithACloseOfItsOwn) {
  ClusterOptions options = Options("adasum");
  options.coordinator.combine.rule.kappa_limit = 0.0;
  RunningJob job(options, TestManifest(), 3);
  job.cluster.peer(1)->FailNext(PhaseKind::kCompensatedGram,
                                absl::InternalError("test"));
  job.RunRound(0);
  options.offers = false;
  RunningJob smooth(options, TestManifest(), 3);
  smooth.RunRound(0);
  EXPECT_EQ(*job.cluster.Pull(1), *smooth.cluster.Pull(1));
  EXPECT_THAT(
      job.cluster.peer(1)->phases(),
      ElementsAre(PhaseKind::kPublish, PhaseKind::kAbandon, PhaseKind::kClose,
                  PhaseKind::kCompensatedGram, PhaseKind::kUpdate));
}

TEST_F(OffersTest, ARuleThatIsSetMeanwhileHoldsForTheNextRound) {
  for (int rank = 0; rank < 3; ++rank) Push(rank);
  RuleChange change;
  change.rule = "sum";
  ASSERT_TRUE(cluster().coordinator()->SetRule(change, nullptr).ok());
  for (int rank = 0; rank < 3; ++rank) Commit(rank);
  cluster().Settle();
  ExpectMeanOf({RowOf(0), RowOf(1), RowOf(2)});
}

class QuorumTest : public OffersTest {
 protected:
  static ClusterOptions WithQuorum() {
    ClusterOptions options = Options();
    options.coordinator.quorum = 2;
    return options;
  }
  QuorumTest() : OffersTest(WithQuorum()) {}
};

TEST_F(QuorumTest, ClosesWithTheCommittedRowsAlone) {
  for (int rank = 0; rank < 3; ++rank) Push(rank);
  Commit(0);
  const OutcomeReply reply = Commit(2);
  cluster().Settle();
  EXPECT_THAT(reply.Get()->ranks, ElementsAre(0, 2));
  ExpectMeanOf({RowOf(0), RowOf(2)});
  EXPECT_THAT(PhasesOf(1), Contains(PhaseKind::kClose));
}

// The epoch ends behind the offer: the next one asks for it anew.
TEST_F(OffersTest, AnOfferIsOfItsEpoch) {
  ClusterOptions options = Options();
  options.shard.replicated = true;
  options.coordinator.replicated = true;
  RunningJob job(options, TestManifest(), 3);
  job.RunRound(0);
  const auto push = [&](int rank) {
    EXPECT_EQ(job.workers[rank].Push(1, RowOf(rank)), absl::OkStatus());
  };
  for (int rank = 0; rank < 3; ++rank) push(rank);
  job.cluster.LoseConnection(1);
  job.cluster.Advance(absl::Seconds(2));
  const JobStatus status = job.cluster.Status();
  ASSERT_EQ(status.version, 1u);
  for (LocalWorker& worker : job.workers) {
    ASSERT_EQ(worker.Resume(1, 0), absl::OkStatus());
  }
  // Rows are still there; nobody pushes again.
  std::vector<OutcomeReply> replies;
  for (LocalWorker& worker : job.workers) replies.push_back(worker.Commit(1));
  job.cluster.Settle();
  EXPECT_TRUE(replies[1].Get()->included);
  EXPECT_THAT(job.cluster.peer(1)->phases(), Contains(PhaseKind::kClose));
  EXPECT_TRUE(job.cluster.Pull(2).ok());
}

}  // namespace
}  // namespace agg
