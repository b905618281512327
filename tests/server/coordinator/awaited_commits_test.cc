#include "server/coordinator/awaited_commits.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/shard_plan.h"
#include "server/coordinator/coordinator_types.h"
#include "server/round/shard_peer.h"

namespace agg {
namespace {

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

}  // namespace
}  // namespace agg
