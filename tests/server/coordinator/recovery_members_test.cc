#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/recovery_plan.h"
#include "server/round/recovery.h"

namespace agg {
namespace {

using ::testing::IsEmpty;

MemberState Member(int32_t rank, uint64_t session) {
  MemberState member;
  member.rank = rank;
  member.session = session;
  return member;
}

TEST(SurvivingMembersTest, AliveSomewhereAndEndedNowhere) {
  std::vector<ShardInventory> shards(2);
  shards[0].members = {Member(2, 30), Member(0, 10), Member(1, 20)};
  shards[1].members = {Member(0, 11), Member(0, 10), Member(3, 40)};
  shards[1].ended_sessions = {20, 50};
  shards[0].members[0].client = "host:1";
  shards[0].members[0].first_round = 4;
  const std::vector<MemberState> members = SurvivingMembers(shards);
  ASSERT_EQ(members.size(), 3u);
  EXPECT_EQ(members[0].session, 11u);  // the highest of rank 0
  EXPECT_EQ(members[1].session, 30u);
  EXPECT_EQ(members[1].client, "host:1");
  EXPECT_EQ(members[1].first_round, 4u);
  EXPECT_EQ(members[2].rank, 3);
  EXPECT_EQ(HighestSession(shards), 50u);
  shards[1].highest_session = 60;
  EXPECT_EQ(HighestSession(shards), 60u);
  EXPECT_THAT(SurvivingMembers({}), IsEmpty());
  EXPECT_EQ(HighestSession({}), 0u);
}

TEST(NewestFactsTest, ByEpochThenNumber) {
  std::vector<ShardInventory> shards(3);
  shards[0].facts = {5, 9, "old"};
  shards[1].facts = {6, 1, "new"};
  shards[2].facts = {6, 0, "begun"};
  EXPECT_EQ(NewestFacts(shards).text, "new");
  EXPECT_EQ(NewestFacts({}).epoch, 0u);
  for (const RecoverPlan& plan : DecideRecovery(shards, true, 7, {}).plans) {
    EXPECT_EQ(plan.facts.text, "new");
  }
}

}  // namespace
}  // namespace agg
