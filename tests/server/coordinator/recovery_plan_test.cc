#include "server/coordinator/recovery_plan.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/optional.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/round/recovery.h"
#include "tests/server/coordinator/recovery_actions.h"

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

// What holds of the resolution for any inventories at all, also such as no job
// comes to: each has a decision, which follows from them alone, can be carried
// out, and leaves nothing to do. Without replication this is what there is
// beside the cases by hand, since the protocol's model has two copies always.

using Kind = RecoveryDecision::Kind;

// What one process may hold of one part; `made` 0: nothing.
const CopyState kCopies[] = {
    {0, {0, 0}, 0, false},    // void
    {0, {10, 7}, 0, false},   // between rounds
    {0, {10, 7}, 10, false},  // prepared in part
    {0, {10, 7}, 10, true},   // prepared
    {0, {10, 7}, 9, true},    // by another epoch
    {0, {10, 8}, 0, false},   // one ahead
    {0, {10, 8}, 10, true},   // and prepared
    {0, {12, 6}, 0, false},   // after a rewind
    {0, {11, 8}, 11, true},   // of a later epoch
};
constexpr size_t kNumCopies = sizeof(kCopies) / sizeof(kCopies[0]);

const absl::optional<VersionId> kCheckpoints[] = {
    absl::nullopt, VersionId{10, 7}, VersionId{10, 5}, VersionId{13, 3}};

// The `number`-th inventories: digits in base kNumCopies, copy by copy, then
// one bit a process for whether it missed epochs.
std::vector<ShardInventory> Inventories(size_t number, int shards,
                                        bool replicated) {
  std::vector<ShardInventory> all(shards);
  for (int shard = 0; shard < shards; ++shard) {
    for (int i = 0; i < (replicated ? 2 : 1); ++i) {
      CopyState copy = kCopies[number % kNumCopies];
      number /= kNumCopies;
      copy.part = i == 0 ? shard : (shard + shards - 1) % shards;
      if (copy.id.made != 0) all[shard].copies.push_back(copy);
    }
  }
  for (ShardInventory& inventory : all) {
    inventory.member_epoch = number % 2 == 0 ? 12 : 10;
    number /= 2;
  }
  return all;
}

size_t NumInventories(int shards, bool replicated) {
  size_t count = 1;
  for (int i = 0; i < shards; ++i) {
    count *= 2 * kNumCopies * (replicated ? kNumCopies : 1);
  }
  return count;
}

void ExpectSound(const std::vector<ShardInventory>& inventories,
                 bool replicated, const absl::optional<VersionId>& checkpoint,
                 bool usable) {
  CheckpointChoice choice;
  choice.id = checkpoint;
  if (!usable)
    (checkpoint.has_value() ? choice.refused : choice.unreadable) = "torn";
  const RecoveryDecision decision =
      DecideRecovery(inventories, replicated, 20, choice);
  EXPECT_FALSE(decision.text.empty());
  EXPECT_EQ(decision.plans.size(), inventories.size());
  EXPECT_EQ(decision.checkpoint.has_value(),
            decision.kind == Kind::kLoad || decision.kind == Kind::kRewind);
  if (decision.kind == Kind::kWait) {
    EXPECT_FALSE(usable);
    EXPECT_THAT(decision.text, testing::HasSubstr("torn"));
    EXPECT_EQ(decision.target, VersionId());
    return;
  }
  // Nothing is passed over.
  EXPECT_TRUE(usable || decision.kind == Kind::kGoOn);
  if (decision.kind == Kind::kNothing || decision.kind == Kind::kUnseeded) {
    EXPECT_FALSE(checkpoint.has_value());
    EXPECT_EQ(decision.kind == Kind::kNothing, NumCopies(inventories) == 0);
    return;
  }
  ExpectNothingMoreToDo(inventories, replicated, 20, choice, decision);
}

void ExpectAllSound(int shards, bool replicated) {
  const size_t count = NumInventories(shards, replicated);
  for (size_t number = 0; number < count; ++number) {
    const std::vector<ShardInventory> inventories =
        Inventories(number, shards, replicated);
    for (const absl::optional<VersionId>& checkpoint : kCheckpoints) {
      ExpectSound(inventories, replicated, checkpoint, true);
      ExpectSound(inventories, replicated, checkpoint, false);
    }
    ASSERT_FALSE(testing::Test::HasFailure()) << "inventories " << number;
  }
}

TEST(RecoveryTotalTest, HomesAlone) {
  for (const int shards : {1, 2, 3}) ExpectAllSound(shards, false);
}

TEST(RecoveryTotalTest, HomesAndReplicas) { ExpectAllSound(2, true); }

}  // namespace
}  // namespace agg
