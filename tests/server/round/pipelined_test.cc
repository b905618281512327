// Rounds that are published wave by wave (P43), through a coordinator and its
// shards: the same bits as atomic rounds, and what becomes of rows that are
// lost, changed or not finite in the middle.
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shard_plan.h"
#include "proto/wave_plan.h"
#include "server/coordinator/coordinator_types.h"
#include "server/round/round_report.h"
#include "server/shard/published_version.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Three waves: two slices and a small tensor, one slice, and the rest, with a
// tensor that has no element.
Manifest ThreeWaves() {
  return MakeManifest(
      {{kMinWaveElements + 5}, {kMinWaveElements}, {3}, {0}, {2}});
}

ClusterOptions Options(int num_shards, int workers,
                       const std::string& rule = "mean") {
  ClusterOptions options = MakeClusterOptions(num_shards, workers, rule);
  options.coordinator.pipelined = true;
  options.shard.pipelined = true;
  options.shard.early_gram = false;
  return options;
}

class PipelinedTest : public testing::Test {
 protected:
  void Start(int num_shards, int workers, const std::string& rule = "mean") {
    job_ = std::make_unique<RunningJob>(Options(num_shards, workers, rule),
                                        ThreeWaves(), workers,
                                        FilledTensors(ThreeWaves(), 1.0f));
  }
  LocalWorker& worker(int rank) { return job_->workers[rank]; }
  LocalCluster& cluster() { return job_->cluster; }

  // The commit that comes with the first frame.
  OutcomeReply Announce(int rank, uint64_t round, uint32_t attempt = 0,
                        int64_t examples = 1) {
    CommitCall call;
    call.epoch = worker(rank).joined().epoch;
    call.session = worker(rank).session();
    call.round = round;
    call.attempt = attempt;
    call.with_frame = true;
    call.info.row.examples = examples;
    OutcomeReply reply;
    cluster().coordinator()->Commit(call, reply.callback());
    return reply;
  }
  // Lands these tensors, [begin, end) of the manifest.
  absl::Status Push(int rank, uint64_t round, const Tensors& row, int begin,
                    int end, uint32_t attempt = 0) {
    FrameHeader header = worker(rank).Header(round);
    header.attempt = attempt;
    const ShardPlan plan = *MakeShardPlan(ThreeWaves(), cluster().num_shards());
    for (int shard = 0; shard < cluster().num_shards(); ++shard) {
      for (const TestFrame& frame : MakeFrames(header, plan, shard, row)) {
        const int tensor = plan.slices[frame.header.slices[0]].tensor;
        if (tensor < begin || tensor >= end) continue;
        const auto result = LandFrame(cluster().engine(shard), frame);
        if (!result.ok()) return result.status();
      }
    }
    cluster().Settle();
    return absl::OkStatus();
  }
  // Asks for the version that is being written.
  Reply<absl::StatusOr<PublishedVersion>> AskPartial(uint64_t version) {
    Reply<absl::StatusOr<PublishedVersion>> reply;
    cluster().engine(0)->Pull(0, version, /*latest=*/false, reply.callback(),
                              /*partial=*/true);
    return reply;
  }

  std::unique_ptr<RunningJob> job_;
};

Tensors Row(float value) { return FilledTensors(ThreeWaves(), value); }

TEST_F(PipelinedTest, SameBitsAsAtomicRoundsWhateverTheShards) {
  // By round, then by rank.
  std::vector<std::vector<Tensors>> rows(2);
  for (size_t round = 0; round < rows.size(); ++round) {
    for (size_t rank = 0; rank < 3; ++rank) {
      rows[round].push_back(RandomTensors(ThreeWaves(), 10 * round + rank));
    }
  }
  for (const char* rule : {"sum", "mean", "weighted_mean", "unit_mean",
                           "adasum", "adasum_counted"}) {
    const ClusterOptions atomic = MakeClusterOptions(1, 3, rule);
    RunningJob expected(atomic, ThreeWaves(), 3,
                        FilledTensors(ThreeWaves(), 1.0f));
    for (uint64_t round = 0; round < 2; ++round) {
      std::vector<OutcomeReply> replies;
      for (LocalWorker& worker : expected.workers) {
        const auto rank = static_cast<uint64_t>(worker.rank());
        ASSERT_TRUE(worker.Push(round, rows[round][rank]).ok());
        RowInfo info;
        info.examples = static_cast<int64_t>(rank) + 1;
        replies.push_back(worker.Commit(round, info));
      }
      expected.cluster.Settle();
    }
    for (const int num_shards : {1, 3}) {
      Start(num_shards, 3, rule);
      for (uint64_t round = 0; round < 2; ++round) {
        std::vector<OutcomeReply> replies;
        for (int rank = 0; rank < 3; ++rank) {
          replies.push_back(Announce(rank, round, 0, rank + 1));
        }
        // Each worker's tensors come in another order between the others'.
        for (int tensor = 0; tensor < 5; ++tensor) {
          for (int rank = 2; rank >= 0; --rank) {
            ASSERT_TRUE(
                Push(rank, round, rows[round][rank], tensor, tensor + 1).ok());
          }
        }
        for (const OutcomeReply& reply : replies) {
          ASSERT_TRUE(reply.called()) << rule;
          EXPECT_TRUE(reply.Get()->included);
          EXPECT_THAT(reply.Get()->ranks, ElementsAre(0, 1, 2));
          EXPECT_EQ(reply.Get()->message, "");
        }
      }
      EXPECT_TRUE(SameBits(*cluster().Pull(2), *expected.cluster.Pull(2)))
          << rule << ", " << num_shards << " shards";
      const RoundReport report = cluster().reports().back();
      const RoundReport other = expected.cluster.reports().back();
      EXPECT_EQ(report.decision.combined_norm, other.decision.combined_norm);
      EXPECT_EQ(report.decision.orthogonality, other.decision.orthogonality);
      EXPECT_EQ(report.statistics.max_kappa, other.statistics.max_kappa);
    }
  }
}

TEST_F(PipelinedTest, AWaveIsServedWhileOthersAreOnTheirWay) {
  Start(1, 2);
  const OutcomeReply first = Announce(0, 0);
  const OutcomeReply second = Announce(1, 0);
  const auto pull = AskPartial(1);
  ASSERT_TRUE(Push(0, 0, Row(1), 0, 5).ok());
  ASSERT_TRUE(Push(1, 0, Row(3), 0, 1).ok());
  // Two slices are written, of six; nobody is told that the version is there.
  ASSERT_TRUE(pull.called());
  ASSERT_TRUE(pull.Get().ok()) << pull.Get().status();
  const PublishedVersion version = *pull.Get();
  EXPECT_EQ(version.version, 1u);
  ASSERT_NE(version.progress, nullptr);
  EXPECT_TRUE(version.progress->Allows(2, false));
  EXPECT_FALSE(version.progress->Allows(3, false));
  EXPECT_EQ(cluster().Pull(1).status(), absl::UnavailableError("waiting"));
  EXPECT_FALSE(first.called());
  const auto* values =
      reinterpret_cast<const float*>(version.snapshot->data(DType::kF32));
  EXPECT_EQ(values[0], 0.0f);  // 1 - 0.5 * (1 + 3) / 2
  ASSERT_TRUE(Push(1, 0, Row(3), 1, 5).ok());
  EXPECT_TRUE(version.progress->Allows(5, true));
  ASSERT_TRUE(first.called());
  ASSERT_TRUE(second.called());
  EXPECT_EQ(first.Get()->version, 1u);
  EXPECT_TRUE(SameBits(*cluster().Pull(1), Row(0)));
}

TEST_F(PipelinedTest, AnOrdinaryCommitIsOfAWholeRow) {
  Start(2, 2);
  const OutcomeReply ordinary = *worker(0).Contribute(0, Row(1));
  const OutcomeReply early = Announce(1, 0);
  ASSERT_TRUE(Push(1, 0, Row(1), 0, 5).ok());
  ASSERT_TRUE(ordinary.called());
  ASSERT_TRUE(early.called());
  EXPECT_TRUE(ordinary.Get()->included);
}

TEST_F(PipelinedTest, ARowThatIsCutCountsForTheTensorsThatItHas) {
  Start(2, 2);
  const OutcomeReply stays = Announce(0, 0);
  const OutcomeReply leaves = Announce(1, 0);
  ASSERT_TRUE(Push(0, 0, Row(1), 0, 5).ok());
  ASSERT_TRUE(Push(1, 0, Row(3), 0, 2).ok());
  EXPECT_FALSE(stays.called());
  EXPECT_THAT(cluster().Status().missing_ranks, ElementsAre(1));
  ASSERT_TRUE(worker(1).Leave().ok());
  ASSERT_TRUE(stays.called());
  const RoundResult outcome = *stays.Get();
  EXPECT_EQ(outcome.kind, OutcomeKind::kApplied);
  EXPECT_THAT(outcome.ranks, ElementsAre(0));
  EXPECT_THAT(outcome.excluded_ranks, ElementsAre(1));
  EXPECT_THAT(outcome.message, HasSubstr("rank 1 in 2 of 5 tensors"));
  const Tensors values = *cluster().Pull(1);
  EXPECT_EQ(values[0][0], 0.0f);  // of both rows
  EXPECT_EQ(values[1][7], 0.0f);
  EXPECT_EQ(values[2][2], 0.5f);  // of the first one
  EXPECT_EQ(values[4][1], 0.5f);
  // The next round goes on without it.
  const OutcomeReply next = Announce(0, 1);
  ASSERT_TRUE(Push(0, 1, Row(1), 0, 5).ok());
  ASSERT_TRUE(next.called());
  EXPECT_THAT(next.Get()->excluded_ranks, IsEmpty());
}

TEST_F(PipelinedTest, ARowWhoseFirstWaveIsNotThereIsOut) {
  Start(1, 2);
  const OutcomeReply stays = Announce(0, 0);
  Announce(1, 0);  // and not one frame of it
  ASSERT_TRUE(Push(0, 0, Row(1), 0, 5).ok());
  EXPECT_FALSE(stays.called());
  EXPECT_THAT(cluster().Status().missing_ranks, ElementsAre(1));
  const absl::Duration half = cluster().options().coordinator.lease * 0.6;
  cluster().Advance(half);
  ASSERT_TRUE(cluster()
                  .coordinator()
                  ->Renew(worker(0).joined().epoch, worker(0).session())
                  .ok());
  cluster().Advance(half);  // the other one's lease is over
  ASSERT_TRUE(stays.called());
  EXPECT_THAT(stays.Get()->ranks, ElementsAre(0));
  EXPECT_THAT(stays.Get()->excluded_ranks, IsEmpty());
}

TEST_F(PipelinedTest, ARowThatIsNotFiniteIsLeftOutOfThatTensorAlone) {
  for (const int num_shards : {1, 2}) {
    Start(num_shards, 2);
    Tensors bad = Row(3);
    bad[1][12] = std::numeric_limits<float>::infinity();
    bad[4][0] = std::nanf("");
    const OutcomeReply first = Announce(0, 0);
    const OutcomeReply second = Announce(1, 0);
    ASSERT_TRUE(Push(0, 0, Row(1), 0, 5).ok());
    ASSERT_TRUE(Push(1, 0, bad, 0, 5).ok());
    ASSERT_TRUE(second.called());
    EXPECT_FALSE(second.Get()->included);
    EXPECT_TRUE(first.Get()->included);
    EXPECT_THAT(first.Get()->excluded_ranks, ElementsAre(1));
    EXPECT_THAT(first.Get()->message, HasSubstr("rank 1 in 3 of 5 tensors"));
    const Tensors values = *cluster().Pull(1);
    EXPECT_EQ(values[0][0], 0.0f);
    EXPECT_EQ(values[1][0], 0.5f);
    EXPECT_EQ(values[2][0], 0.0f);
    EXPECT_EQ(values[4][1], 0.5f);
  }
}

TEST_F(PipelinedTest, ATensorWithoutARowStaysAsItIs) {
  Start(2, 1);
  Tensors bad = Row(1);
  bad[1][12] = std::nanf("");
  const OutcomeReply reply = Announce(0, 0);
  ASSERT_TRUE(Push(0, 0, bad, 0, 5).ok());
  ASSERT_TRUE(reply.called());
  EXPECT_EQ(reply.Get()->kind, OutcomeKind::kApplied);
  EXPECT_THAT(reply.Get()->message, HasSubstr("1 of 5 tensors are as they"));
  const Tensors values = *cluster().Pull(1);
  EXPECT_EQ(values[0][0], 0.5f);
  EXPECT_EQ(values[1][0], 1.0f);
  EXPECT_EQ(values[2][0], 0.5f);
}

TEST_F(PipelinedTest, ARoundWithoutAnyTensorIsSkipped) {
  Start(1, 1);
  Tensors bad = Row(1);
  for (std::vector<float>& tensor : bad) {
    if (!tensor.empty()) tensor[0] = std::nanf("");
  }
  // A tensor without elements has a finite row, and nothing to step.
  const OutcomeReply reply = Announce(0, 0);
  ASSERT_TRUE(Push(0, 0, bad, 0, 5).ok());
  ASSERT_TRUE(reply.called());
  EXPECT_TRUE(SameBits(*cluster().Pull(1), Row(1)));
}

TEST_F(PipelinedTest, AnotherAttemptIsTakenUpToTheFirstWaveAlone) {
  Start(1, 2);
  Announce(0, 0);
  Announce(1, 0);
  ASSERT_TRUE(Push(1, 0, Row(5), 0, 1).ok());
  const OutcomeReply again = Announce(1, 0, 1);
  ASSERT_TRUE(Push(1, 0, Row(3), 0, 1, 1).ok());
  ASSERT_TRUE(Push(0, 0, Row(1), 0, 1).ok());  // the first wave runs
  EXPECT_THAT(Push(1, 0, Row(7), 0, 1, 2).message(),
              HasSubstr("being published with attempt 1"));
  EXPECT_EQ(Push(1, 0, Row(7), 1, 2, 2).code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(Push(1, 0, Row(3), 0, 5, 1).ok());  // a repeat, and the rest
  ASSERT_TRUE(Push(0, 0, Row(1), 1, 5).ok());
  ASSERT_TRUE(again.called());
  EXPECT_TRUE(again.Get()->included);
  EXPECT_TRUE(SameBits(*cluster().Pull(1), Row(0)));
}

TEST_F(PipelinedTest, ALieAboutARowCostsThatRowAlone) {
  Start(1, 2);
  const OutcomeReply honest = Announce(0, 0);
  ASSERT_TRUE(Push(0, 0, Row(1), 0, 5).ok());
  // Its commit says that all of it is there, and its second wave is not.
  ASSERT_TRUE(Push(1, 0, Row(3), 0, 1).ok());
  CommitCall call;
  call.epoch = worker(1).joined().epoch;
  call.session = worker(1).session();
  OutcomeReply liar;
  cluster().coordinator()->Commit(call, liar.callback());
  ASSERT_TRUE(liar.called());
  EXPECT_EQ(liar.Get().status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(worker(1).Leave().ok());
  ASSERT_TRUE(honest.called());
  EXPECT_TRUE(honest.Get()->included);
}

TEST_F(PipelinedTest, AnEpochThatEndsInTheMiddleShowsNothing) {
  Start(2, 1);
  const OutcomeReply reply = Announce(0, 0);
  ASSERT_TRUE(Push(0, 0, Row(1), 0, 2).ok());
  const auto pull = AskPartial(1);
  ASSERT_TRUE(pull.called());
  const PublishedVersion version = *pull.Get();
  absl::Status heard;
  version.progress->Listen([&](const absl::Status& status) { heard = status; });
  cluster().RestartShard(1);
  cluster().Advance(absl::Seconds(2));
  EXPECT_FALSE(heard.ok());
  EXPECT_FALSE(version.progress->Allows(1, false));
  ASSERT_TRUE(reply.called());
  EXPECT_FALSE(reply.Get().ok());
  // The copies are between two versions: without checkpoints the job begins
  // anew.
  EXPECT_FALSE(cluster().Status().seeded);
}

TEST_F(PipelinedTest, TheJobGoesOnFromACheckpointBehindACutRound) {
  ClusterOptions options = Options(2, 1);
  options.checkpoint_path = absl::StrCat(testing::TempDir(), "/pipelined");
  std::filesystem::remove_all(options.checkpoint_path);
  std::filesystem::create_directories(options.checkpoint_path);
  options.coordinator.checkpoint.enabled = true;
  options.coordinator.checkpoint.every_rounds = 1;
  job_ = std::make_unique<RunningJob>(options, ThreeWaves(), 1,
                                      FilledTensors(ThreeWaves(), 1.0f));
  const OutcomeReply first = Announce(0, 0);
  ASSERT_TRUE(Push(0, 0, Row(1), 0, 5).ok());
  ASSERT_TRUE(first.called());
  cluster().AwaitCheckpoints(1);
  Announce(0, 1);
  ASSERT_TRUE(Push(0, 1, Row(1), 0, 2).ok());
  ASSERT_EQ(cluster().Pull(2).status(), absl::UnavailableError("waiting"));
  cluster().RestartShard(1);
  cluster().Advance(absl::Seconds(2));
  ASSERT_TRUE(worker(0).Resume(1, first.Get()->epoch).ok());
  EXPECT_EQ(worker(0).joined().version, 1u);
  const OutcomeReply again = Announce(0, 1);
  ASSERT_TRUE(Push(0, 1, Row(1), 0, 5).ok());
  ASSERT_TRUE(again.called());
  ASSERT_TRUE(again.Get().ok()) << again.Get().status();
  EXPECT_TRUE(SameBits(*cluster().Pull(2), Row(0)));
}

TEST_F(PipelinedTest, RulesThatLookAtAllTensorsAreNotTaken) {
  Start(1, 1);
  RuleChange change;
  change.scope = "global";
  const auto result =
      cluster().coordinator()->SetRule(change, /*check=*/nullptr);
  EXPECT_THAT(result.status().message(),
              HasSubstr("combination.scope is \"global\"; allowed: with "
                        "publish \"pipelined\": \"per_tensor\""));
}

}  // namespace
}  // namespace agg
