#include "server/coordinator/awaited_commits.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shard_plan.h"
#include "server/coordinator/coordinator_types.h"
#include "server/round/shard_peer.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

CommitCall CommitOf(uint64_t session, uint64_t round, uint32_t attempt) {
  CommitCall call;
  call.session = session;
  call.round = round;
  call.attempt = attempt;
  return call;
}

// What happens to one session, a letter and numbers each:
//   c ROUND ATTEMPT   its commit comes with a frame
//   r SHARD ROUND ATTEMPT   a report
//   e ROUND   the round ends
//   f   the session ends
struct Event {
  char kind;
  std::vector<int> numbers;
};

struct Case {
  std::string name;
  std::vector<Event> events;
  // "ROUND.ATTEMPT" of what was committed, in order; "-" of what was given up
  // by the end of a round.
  std::string committed;
};

std::string Play(const std::vector<Event>& events) {
  AwaitedCommits awaited;
  awaited.Begin(/*num_reporting=*/2);
  std::string text;
  const auto note = [&](const std::string& sign, const CommitCall& call) {
    text += sign + std::to_string(call.round) + "." +
            std::to_string(call.attempt) + " ";
  };
  for (const Event& event : events) {
    const std::vector<int>& n = event.numbers;
    if (event.kind == 'c') {
      const CommitCall call =
          CommitOf(7, static_cast<uint64_t>(n[0]), static_cast<uint32_t>(n[1]));
      if (awaited.Reported(call)) {
        note("", call);
      } else {
        awaited.Add(call);
      }
    } else if (event.kind == 'r') {
      const std::optional<CommitCall> call = awaited.Report(
          n[0], {7, static_cast<uint64_t>(n[1]), static_cast<uint32_t>(n[2])});
      if (call.has_value()) note("", *call);
    } else if (event.kind == 'e') {
      for (const CommitCall& call :
           awaited.TakeUpTo(static_cast<uint64_t>(n[0]))) {
        note("-", call);
      }
    } else {
      awaited.Forget(7);
    }
  }
  return text;
}

TEST(AwaitedCommitsTest, OrdersOfEvents) {
  const std::vector<Case> cases = {
      {"commit first",
       {{'c', {3, 0}}, {'r', {1, 3, 0}}, {'r', {2, 3, 0}}},
       "3.0 "},
      {"commit between",
       {{'r', {2, 3, 0}}, {'c', {3, 0}}, {'r', {1, 3, 0}}},
       "3.0 "},
      {"commit last",
       {{'r', {1, 3, 0}}, {'r', {2, 3, 0}}, {'c', {3, 0}}},
       "3.0 "},
      {"one shard is silent", {{'c', {3, 0}}, {'r', {1, 3, 0}}}, ""},
      {"one shard reports twice",
       {{'c', {3, 0}}, {'r', {1, 3, 0}}, {'r', {1, 3, 0}}},
       ""},
      {"a repeat commits nothing twice",
       {{'c', {3, 0}}, {'r', {1, 3, 0}}, {'r', {2, 3, 0}}, {'r', {2, 3, 0}}},
       "3.0 "},
      {"a higher attempt replaces",
       {{'c', {3, 0}},
        {'r', {1, 3, 0}},
        {'c', {3, 1}},
        {'r', {2, 3, 0}},
        {'r', {1, 3, 1}},
        {'r', {2, 3, 1}}},
       "3.1 "},
      {"a lower attempt comes too late",
       {{'c', {3, 1}},
        {'r', {1, 3, 1}},
        {'c', {3, 0}},
        {'r', {1, 3, 0}},
        {'r', {2, 3, 1}}},
       "3.1 "},
      {"reports of different attempts make no row",
       {{'c', {3, 1}}, {'r', {1, 3, 1}}, {'r', {2, 3, 0}}},
       ""},
      {"reports of the last round are none of this one",
       {{'r', {1, 3, 0}}, {'r', {2, 3, 0}}, {'c', {4, 0}}, {'r', {1, 4, 0}}},
       ""},
      {"the round ends first",
       {{'c', {3, 0}}, {'r', {1, 3, 0}}, {'e', {3}}, {'r', {2, 3, 0}}},
       "-3.0 "},
      {"the round before ends",
       {{'c', {4, 0}}, {'e', {3}}, {'r', {1, 4, 0}}, {'r', {2, 4, 0}}},
       "4.0 "},
      {"the session ends",
       {{'c', {3, 0}}, {'r', {1, 3, 0}}, {'f', {}}, {'r', {2, 3, 0}}},
       ""},
      {"shards that need not report count for nothing",
       {{'c', {3, 0}},
        {'r', {0, 3, 0}},
        {'r', {1, 3, 0}},
        {'r', {3, 3, 0}},
        {'r', {-1, 3, 0}}},
       ""},
  };
  for (const Case& c : cases) EXPECT_EQ(Play(c.events), c.committed) << c.name;
}

TEST(AwaitedCommitsTest, OneShardReportsNothing) {
  AwaitedCommits awaited;
  awaited.Begin(0);
  EXPECT_TRUE(awaited.Reported(CommitOf(7, 3, 0)));
}

TEST(AwaitedCommitsTest, AnEpochForgetsTheLastOne) {
  AwaitedCommits awaited;
  awaited.Begin(1);
  awaited.Add(CommitOf(7, 3, 0));
  awaited.Begin(1);
  EXPECT_FALSE(awaited.Report(1, {7, 3, 0}).has_value());
  awaited.Begin(1);
  EXPECT_FALSE(awaited.Reported(CommitOf(7, 3, 0)));
}

TEST(AwaitedCommitsTest, SessionsAreApart) {
  AwaitedCommits awaited;
  awaited.Begin(1);
  awaited.Add(CommitOf(7, 3, 0));
  awaited.Add(CommitOf(8, 3, 0));
  EXPECT_EQ(awaited.Report(1, {8, 3, 0})->session, 8u);
  EXPECT_EQ(awaited.TakeUpTo(3).size(), 1u);
}

// Who has to report is who has slices, as the plan says.
TEST(NumReportingShardsTest, IsThePlans) {
  const std::vector<Manifest> manifests = {
      {{{"a", {3}, "", false}}},
      {{{"a", {0}, "", false}}},
      {{{"a", {3}, "", false}, {"b", {}, "", false}, {"c", {0}, "", false}}},
      {{{"a", {(1 << 20) + 1}, "", false}, {"b", {5, 2}, "", false}}},
      {{{"a", {3 << 20}, "", false}}},
  };
  for (const Manifest& manifest : manifests) {
    for (int num_shards = 1; num_shards <= 5; ++num_shards) {
      const auto plan = MakeShardPlan(manifest, num_shards);
      ASSERT_TRUE(plan.ok());
      const int num_reporting = NumReportingShards(manifest, num_shards);
      for (int shard = 1; shard < num_shards; ++shard) {
        EXPECT_EQ(!plan->slices_of_shard[shard].empty(), shard <= num_reporting)
            << plan->slices.size() << " slices, shard " << shard;
      }
    }
  }
}

// Which rows each wave has, and for whom it waits: tables of events.

constexpr uint64_t kRound = 7;

class OpenWavesTest : public testing::Test {
 protected:
  // Session 10 + rank, attempt 2, one wave each.
  OpenWaves waves_{kRound, 3, {{0, 10, 2, 1}, {1, 11, 2, 1}, {4, 14, 2, 1}}};
  std::set<uint64_t> gone_;

  void Note(uint64_t session, int waves, uint64_t round = kRound,
            uint32_t attempt = 2) {
    waves_.Note({session, round, attempt, 0}, waves);
  }
  OpenWaves::IsAlive Alive() const {
    return [this](uint64_t session) { return gone_.count(session) == 0; };
  }
  std::optional<std::vector<int32_t>> Due() const {
    return waves_.RanksIfDue(Alive());
  }
};

TEST_F(OpenWavesTest, AWaveWaitsForEveryWorkerThatIsAlive) {
  EXPECT_THAT(Due(), Optional(ElementsAre(0, 1, 4)));
  waves_.Advance({});
  EXPECT_EQ(Due(), std::nullopt);
  EXPECT_THAT(waves_.Missing(Alive()), ElementsAre(0, 1, 4));
  Note(10, 2);
  Note(14, 3);
  EXPECT_EQ(Due(), std::nullopt);
  EXPECT_THAT(waves_.Missing(Alive()), ElementsAre(1));
  Note(11, 2);
  EXPECT_THAT(Due(), Optional(ElementsAre(0, 1, 4)));
}

TEST_F(OpenWavesTest, ARowOfAWorkerThatIsGoneIsInTheWavesThatItHas) {
  waves_.Advance({});
  Note(10, 3);
  Note(11, 2);
  Note(14, 1);
  gone_ = {11, 14};
  EXPECT_THAT(Due(), Optional(ElementsAre(0, 1)));
  waves_.Advance({});
  EXPECT_THAT(Due(), Optional(ElementsAre(0)));
  waves_.Advance({});
  EXPECT_TRUE(waves_.done());
}

TEST_F(OpenWavesTest, NobodyWaitsForARowThatAShardLacks) {
  Note(10, 3);
  Note(14, 3);
  EXPECT_THAT(Due(), Optional(ElementsAre(0, 1, 4)));
  waves_.Advance({1});
  EXPECT_THAT(Due(), Optional(ElementsAre(0, 4)));
}

TEST_F(OpenWavesTest, AWaveMayHaveNoRow) {
  waves_.Advance({});
  gone_ = {10, 11, 14};
  EXPECT_THAT(Due(), Optional(IsEmpty()));
}

TEST_F(OpenWavesTest, OtherRowsAndOlderReportsChangeNothing) {
  waves_.Advance({});
  Note(10, 3);
  Note(14, 3);
  Note(11, 3, kRound - 1);
  Note(11, 3, kRound + 1);
  Note(11, 3, kRound, 1);
  Note(11, 3, kRound, 3);
  Note(12, 3);
  EXPECT_EQ(Due(), std::nullopt);
  Note(11, 2);
  Note(11, 1);
  EXPECT_THAT(Due(), Optional(ElementsAre(0, 1, 4)));
}

TEST_F(OpenWavesTest, MoreWavesThanThereAreAreAll) {
  for (const uint64_t session : {10, 11, 14}) Note(session, 1000);
  while (!waves_.done()) {
    EXPECT_THAT(Due(), Optional(ElementsAre(0, 1, 4)));
    waves_.Advance({});
  }
}

}  // namespace
}  // namespace agg
