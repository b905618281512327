#include "server/round/session_table.h"

#include "gtest/gtest.h"

namespace agg {
namespace {

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

}  // namespace
}  // namespace agg
