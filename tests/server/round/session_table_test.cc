#include "server/round/session_table.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/round/worker_transports.h"

namespace agg {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST(SessionTableTest, KnowsTheLivingAndTheEnded) {
  SessionTable table;
  EXPECT_FALSE(table.any_alive());
  EXPECT_EQ(table.Rank(7).status().code(), absl::StatusCode::kNotFound);
  table.Begin(7, 3);
  EXPECT_TRUE(table.any_alive());
  EXPECT_EQ(*table.Rank(7), 3);
  table.End(7, absl::AbortedError("superseded"));
  EXPECT_FALSE(table.any_alive());
  EXPECT_EQ(table.Rank(7).status(), absl::AbortedError("superseded"));
  table.Begin(7, 3);  // a repeated call does not revive it
  EXPECT_FALSE(table.Rank(7).ok());
  table.End(7, absl::NotFoundError("the first reason stays"));
  EXPECT_TRUE(absl::IsAborted(table.Rank(7).status()));
  table.Clear();
  EXPECT_TRUE(absl::IsNotFound(table.Rank(7).status()));
}

TEST(SessionTableTest, ASessionKeepsItsOwner) {
  SessionTable table;
  EXPECT_TRUE(absl::IsNotFound(table.Owner(7).status()));
  table.Begin(7, 3, 0, "host:1", "a");
  table.Begin(7, 3, 0, "host:1", "b");  // a repeat changes nothing
  EXPECT_EQ(*table.Owner(7), "a");
  ASSERT_EQ(table.members().size(), 1);
  EXPECT_EQ(table.members()[0].identity, "a");
  table.End(7, absl::AbortedError("over"));
  EXPECT_EQ(*table.Owner(7), "a");
}

TEST(SessionTableTest, ForgetsTheOldestEnded) {
  SessionTable table;
  for (uint64_t session = 1; session <= 4097; ++session) {
    table.Begin(session, 0);
    table.End(session, absl::AbortedError("over"));
  }
  EXPECT_TRUE(absl::IsNotFound(table.Rank(1).status()));
  EXPECT_TRUE(absl::IsAborted(table.Rank(2).status()));
  EXPECT_FALSE(table.any_alive());
}

// What a worker says of its transports is checked, counted and kept short.

WorkerTransports Parse(const std::string& text, int num_shards) {
  const auto parsed = ParseTransports(text, num_shards);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? *parsed : WorkerTransports();
}

TEST(WorkerTransportsTest, OneWordStandsForAllShards) {
  EXPECT_EQ(Parse("shm", 1).text, "shm");
  const WorkerTransports transports = Parse("unix unix unix", 3);
  EXPECT_EQ(transports.text, "unix");
  EXPECT_THAT(transports.shards, ElementsAre(0, 3, 0, 0, 0));
}

TEST(WorkerTransportsTest, DifferentOnesAreByOrdinal) {
  const WorkerTransports transports = Parse("shm tcp tcp unix", 4);
  EXPECT_EQ(transports.text, "shm tcp tcp unix");
  EXPECT_THAT(transports.shards, ElementsAre(1, 1, 2, 0, 0));
}

TEST(WorkerTransportsTest, NothingIsNotSaid) {
  const WorkerTransports transports = Parse("", 2);
  EXPECT_EQ(transports.text, "");
  EXPECT_THAT(transports.shards, Each(0));
}

// A later release may have one, and a liar may send bytes for a terminal.
TEST(WorkerTransportsTest, WordsThatAreNotKnownAreNotKept) {
  const WorkerTransports transports = Parse("rdma shm", 2);
  EXPECT_EQ(transports.text, "other shm");
  EXPECT_EQ(Parse("\x1b[2J", 1).text, "other");
  EXPECT_EQ(Parse(std::string(100000, 'x'), 1).text, "other");
  EXPECT_EQ(Parse(" ", 2).text, "other");
}

TEST(WorkerTransportsTest, ManyShardsAreCounted) {
  std::string text = "tcp";
  for (int i = 1; i < 1024; ++i) text += i % 4 == 0 ? " tcp" : " shm";
  const WorkerTransports transports = Parse(text, 1024);
  EXPECT_EQ(transports.text, "768 shm, 256 tcp");
  EXPECT_LE(transports.text.size(), WorkerTransports::kMaxBytes);
}

TEST(WorkerTransportsTest, AnotherNumberOfWordsIsRefused) {
  for (const char* text : {"shm", "shm shm shm", "shm  "}) {
    const absl::Status status = ParseTransports(text, 2).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
  }
  EXPECT_EQ(ParseTransports("shm", 2).status().message(),
            "transports is of 1 words; allowed: none, or one per shard, 2");
}

}  // namespace
}  // namespace agg
