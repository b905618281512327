// What becomes of workers whose parameters differ: a line, a status, an end.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/job_phase.h"
#include "server/base/log.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/round_watches.h"
#include "server/round/round_report.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Ranks 0 to 4 have the same; `others` have their own.
ReplicaGroups Differ(const std::vector<int32_t>& others) {
  ReplicaGroups replicas;
  replicas.groups = {{0, 1, 2, 3, 4}};
  if (!others.empty()) replicas.groups.push_back(others);
  replicas.differing = others;
  return replicas;
}

std::string LogOf(ReplicaWatch* watch, uint64_t round,
                  const std::vector<int32_t>& others) {
  SetLogLevel(LogLevel::kInfo);
  testing::internal::CaptureStderr();
  watch->Note(round, Differ(others));
  SetLogLevel(LogLevel::kError);
  return testing::internal::GetCapturedStderr();
}

TEST(ReplicaWatchTest, OneLineForEachSetOfRanks) {
  ReplicaWatch watch(/*fails=*/false);
  EXPECT_EQ(LogOf(&watch, 1, {}), "");
  EXPECT_EQ(watch.Text(), "");
  EXPECT_THAT(LogOf(&watch, 2, {5}),
              HasSubstr("W ] round 2: workers' parameters differ: rank 5"));
  EXPECT_EQ(LogOf(&watch, 3, {5}), "");
  EXPECT_EQ(LogOf(&watch, 4, {}), "");  // another part of the parameters
  EXPECT_EQ(LogOf(&watch, 5, {5}), "");
  EXPECT_THAT(LogOf(&watch, 6, {5, 7}), HasSubstr("ranks 5, 7 from those"));
  EXPECT_THAT(watch.differing(), ElementsAre(5, 7));
  EXPECT_THAT(watch.Text(), HasSubstr("in round 6 workers' parameters differ"));
  EXPECT_EQ(watch.FailureText(), "");
}

TEST(ReplicaWatchTest, IsOverAfterManyEqualRounds) {
  ReplicaWatch watch(/*fails=*/false);
  LogOf(&watch, 100, {5});
  const uint64_t over = 100 + ReplicaWatch::kQuietRounds;
  EXPECT_EQ(LogOf(&watch, over - 1, {}), "");
  EXPECT_THAT(watch.differing(), ElementsAre(5));
  EXPECT_THAT(LogOf(&watch, over, {}), HasSubstr("differed for 64 rounds"));
  EXPECT_THAT(watch.differing(), IsEmpty());
  EXPECT_EQ(watch.Text(), "");
  EXPECT_THAT(LogOf(&watch, over + 1, {5}), HasSubstr("rank 5"));
}

// Three workers, the last of which says another digest from round 1 on.
std::vector<RoundResult> RunRounds(RunningJob* job, int num_rounds) {
  std::vector<RoundResult> outcomes;
  for (int round = 0; round < num_rounds; ++round) {
    std::vector<OutcomeReply> replies;
    for (LocalWorker& worker : job->workers) {
      EXPECT_EQ(worker.Push(static_cast<uint64_t>(round), {{1, 2, 3}}),
                absl::OkStatus());
      CommitCall call;
      call.epoch = worker.joined().epoch;
      call.session = worker.session();
      call.round = static_cast<uint64_t>(round);
      const bool other = worker.rank() == 2 && round > 0;
      call.info.parameters_digest =
          other ? 77 : 70 + static_cast<uint32_t>(round);
      replies.emplace_back();
      job->cluster.coordinator()->Commit(call, replies.back().callback());
    }
    job->cluster.Settle();
    outcomes.push_back(*replies[0].Get());
  }
  return outcomes;
}

TEST(ReplicaWatchTest, TheOutcomeAndTheStatusNameTheRank) {
  RunningJob job(MakeClusterOptions(1, 3), MakeManifest({{3}}), 3);
  const std::vector<RoundResult> outcomes = RunRounds(&job, 3);
  EXPECT_THAT(outcomes[0].differing_ranks, IsEmpty());
  EXPECT_EQ(outcomes[0].message, "");
  EXPECT_THAT(outcomes[1].differing_ranks, ElementsAre(2));
  EXPECT_THAT(outcomes[1].message,
              HasSubstr("differ: rank 2 from those of ranks 0, 1"));
  EXPECT_EQ(outcomes[2].kind, OutcomeKind::kApplied);
  EXPECT_FALSE(outcomes[2].finished);
  const JobStatus status = job.cluster.Status();
  EXPECT_THAT(status.differing_ranks, ElementsAre(2));
  EXPECT_THAT(status.message, HasSubstr("in round 2 workers' parameters"));
  EXPECT_EQ(status.phase, JobPhase::kOpen);
}

TEST(ReplicaWatchTest, EndsTheJobWhereThatIsAskedFor) {
  ClusterOptions options = MakeClusterOptions(1, 3);
  options.coordinator.fail_on_divergence = true;
  RunningJob job(options, MakeManifest({{3}}), 3);
  const std::vector<RoundResult> outcomes = RunRounds(&job, 2);
  EXPECT_FALSE(outcomes[0].finished);
  EXPECT_TRUE(outcomes[1].finished);
  const JobStatus status = job.cluster.Status();
  EXPECT_EQ(status.phase, JobPhase::kFinished);
  EXPECT_TRUE(status.failed);
  EXPECT_THAT(
      status.message,
      HasSubstr("it failed: in round 1 workers' parameters differ: rank "
                "2 from those of ranks 0, 1"));
}

// Who has the same parameters, and whom that names.

// Rank and digest of each row.
ReplicaGroups Of(const std::vector<std::pair<int32_t, uint32_t>>& rows) {
  RoundReport report;
  for (const auto& row : rows) {
    report.rows.emplace_back();
    report.rows.back().rank = row.first;
    report.rows.back().parameters_digest = row.second;
  }
  return GroupReplicas(report);
}

TEST(ReplicaGroupsTest, EqualOnesNameNobody) {
  for (const ReplicaGroups& replicas :
       {Of({}), Of({{0, 7}}), Of({{0, 7}, {1, 7}, {2, 7}}),
        GroupReplicas(RoundReport())}) {
    EXPECT_FALSE(replicas.differ());
    EXPECT_THAT(replicas.differing, IsEmpty());
    EXPECT_EQ(replicas.Text(), "");
  }
}

TEST(ReplicaGroupsTest, WhoSaysNothingIsNotCompared) {
  EXPECT_FALSE(Of({{0, 7}, {1, 0}, {2, 7}}).differ());
  EXPECT_FALSE(Of({{0, 0}, {1, 0}, {2, 7}}).differ());
  EXPECT_THAT(Of({{0, 7}, {1, 0}, {2, 8}, {3, 8}}).differing, ElementsAre(0));
}

TEST(ReplicaGroupsTest, TheMostAreRight) {
  const ReplicaGroups replicas =
      Of({{0, 9}, {1, 7}, {2, 7}, {3, 8}, {5, 7}, {6, 9}, {8, 7}});
  EXPECT_THAT(replicas.groups, ElementsAre(ElementsAre(1, 2, 5, 8),
                                           ElementsAre(0, 6), ElementsAre(3)));
  EXPECT_THAT(replicas.differing, ElementsAre(0, 3, 6));
  EXPECT_THAT(replicas.Text(),
              HasSubstr("differ: ranks 0, 3, 6 from those of ranks 1, 2, 5, 8; "
                        "load the same checkpoint"));
}

TEST(ReplicaGroupsTest, HalfIsNoMajority) {
  const ReplicaGroups replicas = Of({{0, 9}, {1, 7}, {2, 9}, {3, 7}});
  EXPECT_THAT(replicas.differing, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(replicas.Text(),
              HasSubstr("differ: ranks 0, 2 from those of ranks 1, 3 (no "
                        "majority says who is right)"));
  const ReplicaGroups three = Of({{0, 3}, {1, 2}, {2, 1}});
  EXPECT_THAT(
      three.Text(),
      HasSubstr("rank 0 from those of rank 1 from those of rank 2 (no"));
  EXPECT_THAT(Of({{0, 9}, {1, 9}, {2, 8}, {3, 7}}).differing,
              ElementsAre(0, 1, 2, 3));
}

TEST(ReplicaGroupsTest, ManyAreCounted) {
  std::vector<std::pair<int32_t, uint32_t>> rows;
  for (int32_t rank = 0; rank < 100; ++rank) {
    rows.push_back({rank, rank < 30 ? 1000u + static_cast<uint32_t>(rank) : 5});
  }
  const ReplicaGroups replicas = Of(rows);
  EXPECT_EQ(replicas.differing.size(), 30u);
  EXPECT_THAT(replicas.Text(), HasSubstr("ranks 0, 1, 2"));
  EXPECT_THAT(replicas.Text(),
              HasSubstr("14, 15 and 14 more from those of ranks 30,"));
  for (auto& row : rows) row.second = 1 + static_cast<uint32_t>(row.first);
  EXPECT_THAT(Of(rows).Text(), HasSubstr("rank 7, and 92 more groups"));
}

}  // namespace
}  // namespace agg
