#include "worker_client/coordinator_session.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

RoundOutcome Outcome(uint64_t round, std::vector<int> excluded,
                     RoundOutcome::Kind kind = RoundOutcome::Kind::kApplied) {
  RoundOutcome outcome;
  outcome.round = round;
  outcome.kind = kind;
  outcome.excluded_ranks = std::move(excluded);
  outcome.message = "because";
  return outcome;
}

constexpr auto kSkipped = RoundOutcome::Kind::kSkipped;

TEST(OutcomeWatchTest, SaysNothingOfRoundsThatWentWell) {
  OutcomeWatch watch;
  EXPECT_THAT(watch.Note(Outcome(0, {})), IsEmpty());
  EXPECT_THAT(watch.Note(Outcome(1, {}, RoundOutcome::Kind::kSeeded)),
              IsEmpty());
  EXPECT_THAT(watch.Note(Outcome(1, {}, RoundOutcome::Kind::kRewound)),
              IsEmpty());
  EXPECT_EQ(watch.Summary(), "");
}

TEST(OutcomeWatchTest, SaysTheFirstSkippedRound) {
  OutcomeWatch watch;
  watch.Note(Outcome(0, {}));
  EXPECT_THAT(watch.Note(Outcome(1, {0, 1}, kSkipped)),
              ElementsAre("round 1 was skipped, and has changed nothing: "
                          "because"));
  EXPECT_EQ(watch.Summary(), "");
  EXPECT_THAT(watch.Note(Outcome(2, {}, kSkipped)), IsEmpty());
  EXPECT_EQ(watch.Summary(), "2 of 3 rounds were skipped");
}

TEST(OutcomeWatchTest, NamesEachRankOnce) {
  OutcomeWatch watch;
  EXPECT_THAT(watch.Note(Outcome(4, {2})),
              ElementsAre("round 4 has left out the row of rank 2: because"));
  RoundOutcome both = Outcome(5, {1, 2});
  both.message = "";
  EXPECT_THAT(watch.Note(both),
              ElementsAre("round 5 has left out the row of rank 1"));
  EXPECT_THAT(watch.Note(Outcome(5, {3})), IsEmpty());  // asked for again
  EXPECT_EQ(watch.Summary(), "2 of 2 rounds have left out the row of rank 2");
}

TEST(OutcomeWatchTest, HearsOfRoundsBehindARewind) {
  OutcomeWatch watch;
  watch.Note(Outcome(7, {}));
  RoundOutcome back = Outcome(7, {}, RoundOutcome::Kind::kRewound);
  back.version = 5;
  EXPECT_THAT(watch.Note(back), IsEmpty());
  EXPECT_THAT(watch.Note(Outcome(5, {1})),
              ElementsAre("round 5 has left out the row of rank 1: because"));
}

// The first rounds of mixed precision are often skipped, with all rows left
// out.
TEST(OutcomeWatchTest, NamesARankBehindASkippedRound) {
  OutcomeWatch watch;
  watch.Note(Outcome(0, {0, 1}, kSkipped));
  EXPECT_THAT(watch.Note(Outcome(1, {1})),
              ElementsAre("round 1 has left out the row of rank 1: because"));
  EXPECT_THAT(watch.Note(Outcome(2, {1})), IsEmpty());
  EXPECT_EQ(watch.Summary(), "3 of 3 rounds have left out the row of rank 1");
}

}  // namespace
}  // namespace agg
