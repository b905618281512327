#include "server/coordinator/round_watches.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
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
#include "server/round/round_report.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1000000000);

std::vector<int32_t> Range(int32_t begin, int32_t end) {
  std::vector<int32_t> ranks(end - begin);
  std::iota(ranks.begin(), ranks.end(), begin);
  return ranks;
}

TEST(RanksTextTest, NamesRunsAndAbbreviates) {
  EXPECT_EQ(RanksText({}), "no rank");
  EXPECT_EQ(RanksText({7}), "rank 7");
  EXPECT_EQ(RanksText({1, 2}), "ranks 1,2");
  EXPECT_EQ(RanksText(Range(1, 32)), "ranks 1-31");
  EXPECT_EQ(RanksText({0, 2, 3, 5, 6, 7, 9}), "ranks 0,2,3,5-7,9");
  std::vector<int32_t> even;
  for (int32_t rank = 0; rank < 64; rank += 2) even.push_back(rank);
  EXPECT_EQ(RanksText(even), "ranks 0,2,4,6,8,10,12,14,16,18 and 22 more");
}

// The README's job with one worker.
TEST(WaitingTextTest, NamesWhoHasNotJoined) {
  Waiting waiting;
  waiting.expected = 32;
  waiting.joined = {0};
  waiting.seeded = true;
  EXPECT_EQ(WaitingText(waiting, kNow),
            "31 of 32 workers have not joined: ranks 1-31");
  waiting.joined = {0, 1, 5, 40};  // 40: an additional worker
  waiting.expected = 6;
  EXPECT_EQ(WaitingText(waiting, kNow),
            "2 of 6 workers have not joined: ranks 2,3");
  waiting.joined = Range(0, 6);
  EXPECT_EQ(WaitingText(waiting, kNow), "");
  waiting.joined = {0};
  waiting.started = true;  // start_timeout has passed
  EXPECT_EQ(WaitingText(waiting, kNow), "");
}

TEST(WaitingTextTest, NamesWhoHasNotSeeded) {
  Waiting waiting;
  waiting.started = true;
  waiting.joined = {2};
  EXPECT_EQ(WaitingText(waiting, kNow), "");
  waiting.seed_rank = 2;
  EXPECT_EQ(WaitingText(waiting, kNow), "rank 2 has not seeded the parameters");
}

TEST(WaitingTextTest, NamesWhoHasNotCommittedInWholeSeconds) {
  Waiting waiting;
  waiting.started = waiting.seeded = true;
  waiting.expected = 4;
  waiting.joined = Range(0, 4);
  waiting.round = 9;
  waiting.uncommitted = {1, 3};
  EXPECT_EQ(WaitingText(waiting, kNow), "");  // all compute
  waiting.rows_since = kNow - absl::Seconds(60) - absl::Nanoseconds(89564);
  EXPECT_EQ(WaitingText(waiting, kNow),
            "round 9 has waited 1m for ranks 1,3 (round_timeout is off)");
  waiting.has_round_timeout = true;
  EXPECT_EQ(WaitingText(waiting, kNow), "round 9 has waited 1m for ranks 1,3");
  waiting.num_needed = 2;  // all of them
  EXPECT_EQ(WaitingText(waiting, kNow), "round 9 has waited 1m for ranks 1,3");
  waiting.num_needed = 1;  // a quorum
  EXPECT_EQ(WaitingText(waiting, kNow),
            "round 9 has waited 1m for 1 of ranks 1,3");
  waiting.uncommitted.clear();
  EXPECT_EQ(WaitingText(waiting, kNow), "");
}

// Nobody is late, and yet the round waits.
TEST(WaitingTextTest, NamesTheFloorOnceSomebodyHasCommitted) {
  Waiting waiting;
  waiting.started = true;
  waiting.seeded = true;
  waiting.round = 7;
  waiting.floor = "waits: 1 of at least 2 workers (min_workers)";
  EXPECT_EQ(WaitingText(waiting, kNow), "");
  waiting.rows_since = kNow;
  EXPECT_EQ(WaitingText(waiting, kNow),
            "round 7 waits: 1 of at least 2 workers (min_workers)");
  WaitingReport report(absl::Seconds(5), absl::Seconds(60));
  EXPECT_EQ(report.Say(waiting, kNow), "");
  EXPECT_EQ(report.next_at(), kNow + absl::Seconds(5));
  EXPECT_THAT(report.Say(waiting, kNow + absl::Seconds(5)),
              testing::HasSubstr("round 7 waits"));
  EXPECT_EQ(report.next_at(), kNow + absl::Seconds(65));
}

// The others evaluate, and do not know that somebody waits.
TEST(WaitingTextTest, NamesWhoHasJoinedDuringARound) {
  Waiting waiting;
  waiting.started = waiting.seeded = true;
  waiting.expected = 3;
  waiting.joined = {0, 1, 2};
  waiting.round = 7;
  waiting.uncommitted = {0, 2};
  waiting.joining = {1};
  EXPECT_EQ(WaitingText(waiting, kNow),
            "rank 1 has joined during round 7 and waits for its end; ranks 0,2 "
            "have not committed");
  WaitingReport report(absl::Seconds(5), absl::Seconds(60));
  EXPECT_EQ(report.Say(waiting, kNow), "");
  EXPECT_EQ(report.next_at(), kNow + absl::Seconds(5));
  EXPECT_THAT(report.Say(waiting, kNow + absl::Seconds(5)),
              testing::HasSubstr("rank 1 has joined"));
  waiting.joining = {1, 2};
  waiting.uncommitted = {0};
  EXPECT_EQ(WaitingText(waiting, kNow),
            "ranks 1,2 have joined during round 7 and wait for its end; rank 0 "
            "has not committed");
  waiting.rows_since = kNow;  // then the usual line
  EXPECT_EQ(WaitingText(waiting, kNow),
            "round 7 has waited 0 for rank 0 (round_timeout is off)");
}

class WaitingReportTest : public ::testing::Test {
 protected:
  std::string SayAt(int seconds) {
    return report_.Say(waiting_, kNow + absl::Seconds(seconds));
  }
  absl::Time At(int seconds) const { return kNow + absl::Seconds(seconds); }

  WaitingReport report_{absl::Seconds(5), absl::Seconds(60)};
  Waiting waiting_;
};

TEST_F(WaitingReportTest, SaysSoonWhoHasNotJoinedAndRarelyAgain) {
  waiting_.expected = 3;
  EXPECT_EQ(SayAt(0), "");
  EXPECT_EQ(report_.next_at(), At(5));
  waiting_.joined = {0};  // progress: the quiet time begins again
  EXPECT_EQ(SayAt(4), "");
  EXPECT_EQ(report_.next_at(), At(9));
  EXPECT_EQ(SayAt(9), "2 of 3 workers have not joined: ranks 1,2");
  EXPECT_EQ(SayAt(10), "");
  EXPECT_EQ(report_.next_at(), At(69));
  EXPECT_EQ(SayAt(69), "2 of 3 workers have not joined: ranks 1,2");
  waiting_.joined = {0, 1, 2};
  EXPECT_EQ(SayAt(200), "");
  EXPECT_EQ(report_.next_at(), absl::InfiniteFuture());
}

TEST_F(WaitingReportTest, CanBeSwitchedOff) {
  report_ = WaitingReport(absl::ZeroDuration(), absl::ZeroDuration());
  waiting_.expected = 3;
  EXPECT_EQ(SayAt(0), "");
  EXPECT_EQ(SayAt(100000), "");
  EXPECT_EQ(report_.next_at(), absl::InfiniteFuture());
}

TEST_F(WaitingReportTest, SaysOfStragglersLaterAndOfEachRoundAnew) {
  waiting_.started = waiting_.seeded = true;
  waiting_.expected = 2;
  waiting_.joined = {0, 1};
  waiting_.uncommitted = {1};
  waiting_.rows_since = At(0);
  EXPECT_EQ(SayAt(30), "");
  EXPECT_EQ(report_.next_at(), At(60));
  EXPECT_EQ(SayAt(60),
            "round 0 has waited 1m for rank 1 (round_timeout is off)");
  waiting_.round = 1;
  waiting_.rows_since = At(70);
  EXPECT_EQ(SayAt(100), "");
  EXPECT_EQ(report_.next_at(), At(130));
}

bool Note(EqualRowsRun* run, std::vector<std::vector<int32_t>> ranks,
          bool applied = true) {
  RoundReport report;
  report.applied = applied;
  report.decision.equal_ranks = std::move(ranks);
  return run->Note(report);
}

TEST(EqualRowsRunTest, SaysItOnceAndNotAtFirst) {
  EqualRowsRun run;
  EXPECT_FALSE(Note(&run, {{0, 1}}));
  EXPECT_FALSE(Note(&run, {{0, 1}}));
  EXPECT_FALSE(Note(&run, {}));
  EXPECT_FALSE(Note(&run, {{0, 1}}));
  EXPECT_FALSE(Note(&run, {{0, 1}}));
  EXPECT_FALSE(Note(&run, {}, /*applied=*/false));  // it breaks no run
  EXPECT_TRUE(Note(&run, {{0, 1}}));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(Note(&run, {{0, 1}}));
  EXPECT_FALSE(Note(&run, {}));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(Note(&run, {{0, 1}}));
  EXPECT_FALSE(Note(&run, {{0, 1}, {2, 3}}));
  EXPECT_FALSE(Note(&run, {{0, 1}, {2, 3}}));
  EXPECT_TRUE(Note(&run, {{0, 1}, {2, 3}}));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(Note(&run, {}));
}

class RoundLineTest : public testing::Test {
 protected:
  RoundLine Line(const RoundReport& report) {
    run_.Note(report);
    return LineOf(report, run_);
  }
  std::string Text(const RoundReport& report) { return Line(report).text; }
  std::string Reason(const RoundReport& report) { return Line(report).reason; }

  static RoundReport Applied(const std::string& message) {
    RoundReport report;
    report.applied = true;
    report.rows.resize(5);
    report.message = message;
    return report;
  }

  static RoundReport WithOutlier(const std::string& norm = "9") {
    RoundReport report = Applied("excluded as outliers: rank 2 (" + norm + ")");
    report.decision.outliers.rows = {{2, 2, 9, 9}};
    report.decision.outliers.excluded = true;
    report.decision.excluded_ranks = {2};
    return report;
  }

  static RoundReport WithNan(int32_t rank) {
    RoundReport report =
        Applied(absl::StrCat("excluded non-finite rows of ranks ", rank));
    report.decision.excluded_ranks = {rank};
    return report;
  }

  SkippedRun run_{0};
};

TEST_F(RoundLineTest, ARoundWithAMessageHasALine) {
  EXPECT_EQ(Text(Applied("")), "");
  EXPECT_EQ(Text(Applied("one")), "one");
  RoundReport skipped = Applied("why");
  skipped.applied = false;
  EXPECT_EQ(Text(skipped), "why");
  EXPECT_EQ(Text(skipped), "");  // the second one: the tenth has a line
  for (int i = 3; i <= 9; ++i) Text(skipped);
  const RoundLine tenth = Line(skipped);
  EXPECT_EQ(tenth.text, "why; 10 rounds in a row were skipped");
}

// Such lines of a minute are one: a worker whose every row is NaN.
TEST_F(RoundLineTest, RoundsThatLackTheSameRowsHaveOneReason) {
  const std::string reason = Reason(WithNan(2));
  EXPECT_EQ(Reason(WithNan(2)), reason);
  EXPECT_NE(Reason(WithNan(3)), reason);
  RoundReport skipped = WithNan(2);
  skipped.applied = false;
  const std::string first = Reason(skipped);
  EXPECT_NE(first, reason);
  for (int i = 2; i <= 9; ++i) Reason(skipped);
  // In a run of them each line says that it is longer.
  EXPECT_NE(Reason(skipped), first);
}

TEST_F(RoundLineTest, WhatIsUsualInAJobHasOneReason) {
  const std::string usual = Reason(WithOutlier());
  EXPECT_EQ(Reason(WithOutlier("1234.5")), usual);
  RoundReport few = Applied("outliers were not looked for");
  few.decision.outliers.too_few_rows = true;
  EXPECT_EQ(Reason(few), usual);
  few = Applied("krum had fewer rows");
  few.decision.short_of_rows = true;
  EXPECT_EQ(Reason(few), usual);
  RoundReport external = Applied("the external rule gave no weights");
  external.decision.external_fallback = "it is away";
  EXPECT_EQ(Reason(external), usual);
  RoundReport narrowed = Applied("3 values of this version");
  narrowed.narrowed.num_infinite = 3;
  EXPECT_EQ(Reason(narrowed), usual);
}

TEST_F(RoundLineTest, WhatElseThereIsToSayHasItsOwn) {
  const std::string usual = Reason(WithOutlier());
  RoundReport report = WithOutlier();
  report.decision.excluded_ranks = {1, 2};  // 1 is not finite
  EXPECT_NE(Reason(report), usual);
  report = WithOutlier();
  report.decision.compensated = true;
  EXPECT_NE(Reason(report), usual);
  report = WithOutlier();
  report.not_finite.emplace();
  EXPECT_NE(Reason(report), usual);
  // Beside few vanished values.
  report = Applied("one");
  report.narrowed.num_compared = 5000;
  report.narrowed.num_vanished = 1;
  EXPECT_NE(Reason(report), usual);
}

// What becomes of workers whose parameters differ: a line, a status, an end.

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

// A job whose gradients are never finite: it says so once, and with powers of
// ten, and it ends.

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

RoundReport Report(bool applied) {
  RoundReport report;
  report.applied = applied;
  report.rows.resize(2);
  report.message = "no row is finite";
  return report;
}

TEST(SkippedRunTest, CountsAndSaysWhatDeservesALine) {
  SkippedRun run(0);
  std::vector<uint64_t> lines;
  for (int i = 1; i <= 1000; ++i) {
    run.Note(Report(false));
    if (run.worth_a_line()) lines.push_back(run.length());
  }
  EXPECT_THAT(lines, ElementsAre(1, 10, 100, 1000));
  EXPECT_THAT(
      run.Text(),
      HasSubstr("the last 1000 rounds were skipped (no row is finite)"));
  EXPECT_EQ(run.FailureText(), "");  // 0: never
  RoundReport empty = Report(false);
  empty.rows.clear();
  run.Note(empty);
  EXPECT_EQ(run.length(), 1000u);
  run.Note(Report(true));
  EXPECT_EQ(run.length(), 0u);
  EXPECT_TRUE(run.worth_a_line());
  EXPECT_EQ(run.Text(), "");
}

TEST(SkippedRunTest, FailsAtTheLimit) {
  SkippedRun run(2);
  run.Note(Report(false));
  EXPECT_EQ(run.FailureText(), "");
  run.Note(Report(false));
  EXPECT_THAT(run.FailureText(),
              HasSubstr("2 rounds in a row were skipped (max_skipped_rounds)"));
}

RoundReport NotFinite(uint64_t round, const std::string& tensor) {
  RoundReport report = Report(true);
  report.round = round;
  report.not_finite = {tensor, 3};
  return report;
}

TEST(SkippedRunTest, NamesTheRoundThatMadeTheParametersNotFinite) {
  SkippedRun run(2);
  run.Note(Report(true));
  EXPECT_EQ(run.not_finite_length(), 0u);
  run.Note(NotFinite(7, "w"));
  EXPECT_TRUE(run.worth_a_line());
  EXPECT_EQ(run.not_finite_length(), 1u);
  EXPECT_EQ(run.FailureText(), "");
  EXPECT_THAT(run.Text(), HasSubstr("the parameters have not been finite since "
                                    "round 7 (tensor \"w\", shard 3); they "));
  run.Note(Report(false));
  // An update of parameters that were not finite already is not the cause.
  run.Note(NotFinite(9, "v"));
  EXPECT_EQ(run.not_finite_length(), 3u);
  EXPECT_EQ(run.length(), 0u);
  EXPECT_FALSE(run.worth_a_line());
  EXPECT_THAT(run.FailureText(),
              HasSubstr("it failed: the parameters have not been finite since "
                        "round 7 (tensor \"w\", shard 3), and 2 rounds came "
                        "after it (max_skipped_rounds); "));
  run.Note(Report(true));
  EXPECT_EQ(run.not_finite_length(), 0u);
  EXPECT_EQ(run.Text(), "");
  EXPECT_EQ(run.FailureText(), "");
}

// The rate fits float32, and so does the gradient; the step does not.
TEST(SkippedRunTest, ARateThatIsTooLargeIsNamedAsTheCause) {
  ClusterOptions options = MakeClusterOptions(2, 1);
  options.coordinator.combine.schedule.learning_rate = 1e38;
  options.coordinator.max_skipped_rounds = 2;
  RunningJob job(options, MakeManifest({{3}, {3}}), 1);
  Tensors row = {{10, 10, 10}, {10, 10, 10}};
  SetLogLevel(LogLevel::kInfo);
  testing::internal::CaptureStderr();
  const OutcomeReply first = *job.workers[0].Contribute(0, row);
  job.cluster.Settle();
  ASSERT_TRUE(first.called());
  EXPECT_EQ(first.Get()->kind, OutcomeKind::kApplied);
  const std::string cause =
      "this round's update left parameters that are not finite: tensor \"t0\" "
      "(shard 0)";
  EXPECT_THAT(first.Get()->message, HasSubstr(cause));
  EXPECT_FALSE(first.Get()->finished);
  JobStatus status = job.cluster.Status();
  EXPECT_EQ(status.not_finite_rounds, 1u);
  EXPECT_THAT(status.message,
              HasSubstr("the parameters have not been finite since round 0"));
  row[0][0] = std::numeric_limits<float>::quiet_NaN();
  for (uint64_t round = 1; round <= 2; ++round) {
    ASSERT_TRUE(job.workers[0].Contribute(round, row).ok());
    job.cluster.Settle();
  }
  SetLogLevel(LogLevel::kError);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("W ] round 0: " + cause));
  EXPECT_EQ(log.find(cause), log.rfind(cause));
  status = job.cluster.Status();
  EXPECT_EQ(status.phase, JobPhase::kFinished);
  EXPECT_EQ(status.not_finite_rounds, 3u);
  EXPECT_THAT(status.message,
              HasSubstr("it failed: the parameters have not been finite since "
                        "round 0 (tensor \"t0\", shard 0)"));
}

TEST(SkippedRunTest, EndsTheJob) {
  ClusterOptions options = MakeClusterOptions(1, 1);
  options.coordinator.max_skipped_rounds = 3;
  RunningJob job(options, MakeManifest({{3}}), 1);
  Tensors row = RandomTensors(job.manifest, 5);
  for (std::vector<float>& tensor : row) {
    std::fill(tensor.begin(), tensor.end(),
              std::numeric_limits<float>::quiet_NaN());
  }
  SetLogLevel(LogLevel::kInfo);
  testing::internal::CaptureStderr();
  for (uint64_t round = 0; round < 3; ++round) {
    const OutcomeReply reply = *job.workers[0].Contribute(round, row);
    job.cluster.Settle();
    ASSERT_TRUE(reply.called());
    EXPECT_EQ(reply.Get()->kind, OutcomeKind::kSkipped);
    EXPECT_EQ(reply.Get()->finished, round == 2);
    EXPECT_EQ(job.cluster.Status().consecutive_skipped_rounds, round + 1);
  }
  SetLogLevel(LogLevel::kError);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("W ] round 0: "));
  EXPECT_THAT(log, Not(HasSubstr("W ] round 1: ")));
  EXPECT_THAT(log,
              HasSubstr("E ] the job has finished at version 3: it failed: "
                        "3 rounds in a row were skipped"));
  const JobStatus status = job.cluster.Status();
  EXPECT_EQ(status.phase, JobPhase::kFinished);
  EXPECT_THAT(status.message, HasSubstr("it failed: 3 rounds in a row"));
  const absl::Status late = job.workers[0].Join();
  EXPECT_EQ(late.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(late.message(), HasSubstr("(max_skipped_rounds)"));
}

}  // namespace
}  // namespace agg
