// The resolution in cases written by hand: the lines of the table of crash
// points that concern it, and what holds for any inventories at all. The
// comparison with the protocol's model is recovery_oracle_test.
#include "server/coordinator/recovery_plan.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/round/recovery.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = RecoveryDecision::Kind;

constexpr CopyAction kVoid = CopyAction::kVoid;
constexpr CopyAction kKeep = CopyAction::kKeep;
constexpr CopyAction kStep = CopyAction::kStep;
constexpr CopyAction kLoad = CopyAction::kLoad;

constexpr uint64_t kEpoch = 10;    // that the copies live in
constexpr uint64_t kNext = 20;     // the new one
const VersionId kSeven = {10, 7};  // of this epoch
const VersionId kEight = {10, 8};

CopyState At(int32_t part, VersionId id) { return {part, id, 0, false}; }
CopyState Prepared(int32_t part, VersionId id, uint64_t by = kEpoch) {
  return {part, id, by, true};
}
CopyState InPart(int32_t part, VersionId id, uint64_t by = kEpoch) {
  return {part, id, by, false};
}

ShardInventory Shard(std::vector<CopyState> copies, uint64_t member = kEpoch) {
  ShardInventory inventory;
  inventory.member_epoch = member;
  inventory.copies = std::move(copies);
  return inventory;
}
// One that was killed.
ShardInventory New() { return Shard({}, 0); }

// Of K shards with replication, whose copies are made by `copy(part)`.
template <typename MakeCopy>
std::vector<ShardInventory> Ring(int shards, MakeCopy copy) {
  std::vector<ShardInventory> all;
  for (int i = 0; i < shards; ++i) {
    all.push_back(Shard({copy(i), copy((i + shards - 1) % shards)}));
  }
  return all;
}
std::vector<ShardInventory> RingAt(int shards, VersionId id) {
  return Ring(shards, [&](int part) { return At(part, id); });
}
std::vector<ShardInventory> PreparedRing(int shards, VersionId id) {
  return Ring(shards, [&](int part) { return Prepared(part, id); });
}

CheckpointChoice Complete(const absl::optional<VersionId>& checkpoint) {
  CheckpointChoice choice;
  choice.id = checkpoint;
  return choice;
}

RecoveryDecision Decide(const std::vector<ShardInventory>& inventories,
                        const absl::optional<VersionId>& checkpoint = {}) {
  return DecideRecovery(inventories, true, kNext, Complete(checkpoint));
}
// Without replication: homes alone.
RecoveryDecision DecideAlone(const std::vector<ShardInventory>& inventories,
                             const absl::optional<VersionId>& checkpoint = {}) {
  return DecideRecovery(inventories, false, kNext, Complete(checkpoint));
}

std::vector<CopyAction> Homes(const RecoveryDecision& decision) {
  std::vector<CopyAction> actions;
  for (const RecoverPlan& plan : decision.plans) actions.push_back(plan.home);
  return actions;
}
std::vector<CopyAction> Replicas(const RecoveryDecision& decision) {
  std::vector<CopyAction> actions;
  for (const RecoverPlan& plan : decision.plans) {
    actions.push_back(plan.replica);
  }
  return actions;
}

// --- With two copies ---------------------------------------------------------

TEST(RecoveryPlanTest, NothingWasEverSeeded) {
  const RecoveryDecision decision = Decide({New(), New()});
  EXPECT_EQ(decision.kind, Kind::kNothing);
  EXPECT_FALSE(decision.fetch);
  EXPECT_THAT(decision.text, HasSubstr("no copy is left and no checkpoint"));
  EXPECT_EQ(Decide({}).kind, Kind::kNothing);
}

TEST(RecoveryPlanTest, AllIsThere) {
  const RecoveryDecision decision = Decide(RingAt(3, kSeven));
  EXPECT_EQ(decision.kind, Kind::kGoOn);
  EXPECT_EQ(decision.target, kSeven);
  EXPECT_THAT(Homes(decision), ElementsAre(kKeep, kKeep, kKeep));
  EXPECT_THAT(Replicas(decision), ElementsAre(kKeep, kKeep, kKeep));
  EXPECT_FALSE(decision.fetch);
  EXPECT_EQ(decision.plans[0].target, kSeven);
  EXPECT_EQ(decision.text, "6 of 6 copies reach version 7 of epoch 10");
}

// Rows 4 and 5: between rounds, or before the first Prepare.
TEST(RecoveryPlanTest, AKilledShardIsFetched) {
  std::vector<ShardInventory> shards = RingAt(3, kSeven);
  shards[1] = New();
  const RecoveryDecision decision = Decide(shards);
  EXPECT_EQ(decision.kind, Kind::kGoOn);
  EXPECT_EQ(decision.target, kSeven);
  EXPECT_THAT(Homes(decision), ElementsAre(kKeep, kVoid, kKeep));
  EXPECT_THAT(Replicas(decision), ElementsAre(kKeep, kVoid, kKeep));
  EXPECT_TRUE(decision.fetch);
}

// Row 2: the seed is loaded at some homes.
TEST(RecoveryPlanTest, AHalfLoadedSeedIsForgotten) {
  const RecoveryDecision decision =
      Decide({Shard({At(0, {kEpoch, 0})}), Shard({})});
  EXPECT_EQ(decision.kind, Kind::kUnseeded);
  EXPECT_TRUE(decision.plans[0].unseeded);
  EXPECT_TRUE(decision.plans[1].unseeded);
  EXPECT_THAT(Homes(decision), ElementsAre(kVoid, kVoid));
  EXPECT_FALSE(decision.fetch);
  EXPECT_THAT(decision.text, HasSubstr("none of part 1 and no checkpoint"));
}

// Row 3: the seed is at all homes, shown by some; replicas are there or not.
TEST(RecoveryPlanTest, ACompleteSeedStays) {
  const VersionId seed = {kEpoch, 0};
  const RecoveryDecision decision =
      Decide({Shard({At(0, seed)}), Shard({At(1, seed), At(0, seed)})});
  EXPECT_EQ(decision.kind, Kind::kGoOn);
  EXPECT_EQ(decision.target, seed);
  EXPECT_TRUE(decision.fetch);
}

// Row 6: Prepare on some.
TEST(RecoveryPlanTest, ACopyThatIsNotPreparedLeadsBack) {
  std::vector<ShardInventory> shards = PreparedRing(2, kSeven);
  shards[1].copies[1] = InPart(0, kSeven);
  const RecoveryDecision decision = Decide(shards);
  EXPECT_EQ(decision.target, kSeven);
  EXPECT_THAT(Homes(decision), ElementsAre(kKeep, kKeep));
  EXPECT_THAT(Replicas(decision), ElementsAre(kKeep, kKeep));
  EXPECT_THAT(decision.text, HasSubstr("4 had prepared the next version"));
}

// Row 6: all that are left happen to be prepared. Row 7: all are.
TEST(RecoveryPlanTest, AllPreparedCopiesLeadForward) {
  std::vector<ShardInventory> shards = PreparedRing(4, kSeven);
  EXPECT_EQ(Decide(shards).target, kEight);
  shards[0] = New();
  shards[2] = New();
  const RecoveryDecision decision = Decide(shards);
  EXPECT_EQ(decision.kind, Kind::kGoOn);
  EXPECT_EQ(decision.target, kEight);
  EXPECT_THAT(Homes(decision), ElementsAre(kVoid, kStep, kVoid, kStep));
  EXPECT_THAT(Replicas(decision), ElementsAre(kVoid, kStep, kVoid, kStep));
  EXPECT_TRUE(decision.fetch);
  EXPECT_THAT(decision.text, HasSubstr("step that all had prepared"));
}

// The target's `made` is the epoch that prepared it, not that of the base.
TEST(RecoveryPlanTest, ForwardIsMadeByWhoPreparedIt) {
  const VersionId old = {3, 7};
  const std::vector<ShardInventory> shards =
      Ring(2, [&](int part) { return Prepared(part, old); });
  EXPECT_EQ(Decide(shards).target, kEight);
}

// Row 8: Publish on some; also where the home that had published is lost.
TEST(RecoveryPlanTest, AHalfPublishedVersionRollsForward) {
  std::vector<ShardInventory> shards = PreparedRing(2, kSeven);
  shards[0].copies[0] = At(0, kEight);
  RecoveryDecision decision = Decide(shards);
  EXPECT_EQ(decision.target, kEight);
  EXPECT_THAT(Homes(decision), ElementsAre(kKeep, kStep));
  EXPECT_THAT(Replicas(decision), ElementsAre(kStep, kStep));
  EXPECT_FALSE(decision.fetch);
  shards[0] = New();
  decision = Decide(shards);
  EXPECT_EQ(decision.target, kEight);
  EXPECT_THAT(Homes(decision), ElementsAre(kVoid, kStep));
}

// Row 10: a replica is not stepped yet. Row 11: the next Prepare is on its way.
TEST(RecoveryPlanTest, AReplicaThatIsOneBehindSteps) {
  std::vector<ShardInventory> shards = RingAt(2, kEight);
  shards[0].copies[1] = Prepared(1, kSeven);
  EXPECT_EQ(Decide(shards).target, kEight);
  shards[0].copies[0] = Prepared(0, kEight);
  shards[1].copies[0] = Prepared(1, kEight);
  const RecoveryDecision decision = Decide(shards);
  EXPECT_EQ(decision.target, kEight);
  EXPECT_THAT(Homes(decision), ElementsAre(kKeep, kKeep));
  EXPECT_THAT(Replicas(decision), ElementsAre(kStep, kKeep));
}

TEST(RecoveryPlanTest, AStepThatAnotherEpochPreparedCountsForNothing) {
  std::vector<ShardInventory> shards = RingAt(2, kEight);
  for (ShardInventory& shard : shards) shard.member_epoch = kEpoch + 1;
  shards[0].copies[1] = Prepared(1, kSeven, kEpoch + 1);
  const RecoveryDecision decision = Decide(shards);
  EXPECT_EQ(decision.target, kEight);
  EXPECT_THAT(Replicas(decision), ElementsAre(kVoid, kKeep));
  EXPECT_TRUE(decision.fetch);
}

// Row 12: a step has failed and voided its copy.
TEST(RecoveryPlanTest, AFailedStepIsFetched) {
  std::vector<ShardInventory> shards = RingAt(2, kEight);
  shards[0] = Shard({Prepared(1, kSeven)});
  const RecoveryDecision decision = Decide(shards);
  EXPECT_EQ(decision.target, kEight);
  EXPECT_THAT(Homes(decision), ElementsAre(kVoid, kKeep));
  EXPECT_THAT(Replicas(decision), ElementsAre(kStep, kKeep));
}

// Row 15: recovery was cut. Some have stepped under the new epoch's number.
TEST(RecoveryPlanTest, ARecoveryThatWasCutIsGoneOnWith) {
  std::vector<ShardInventory> shards = PreparedRing(2, kSeven);
  shards[0] = Shard({At(0, kEight), At(1, kEight)}, kNext - 5);
  const RecoveryDecision decision = Decide(shards);
  EXPECT_EQ(decision.target, kEight);
  EXPECT_THAT(Homes(decision), ElementsAre(kKeep, kStep));
}

// Row 16, and row 17 with neighbours.
TEST(RecoveryPlanTest, APartWithoutACopyRewinds) {
  std::vector<ShardInventory> shards = RingAt(4, kSeven);
  shards[1] = New();
  shards[2] = New();
  EXPECT_EQ(Decide(shards).kind, Kind::kUnseeded);
  const VersionId checkpoint = {kEpoch, 5};
  RecoveryDecision decision = Decide(shards, checkpoint);
  EXPECT_EQ(decision.kind, Kind::kRewind);
  EXPECT_EQ(decision.target, (VersionId{kNext, 5}));
  EXPECT_EQ(decision.checkpoint, checkpoint);
  EXPECT_THAT(Homes(decision), ElementsAre(kLoad, kLoad, kLoad, kLoad));
  EXPECT_THAT(Replicas(decision), ElementsAre(kVoid, kVoid, kVoid, kVoid));
  EXPECT_TRUE(decision.fetch);
  EXPECT_EQ(decision.text,
            "4 of 8 copies reach version 7 of epoch 10, none of part 1; all "
            "parts are loaded from the checkpoint of version 5 of epoch 10");

  // It is cut: two have loaded. The same checkpoint again.
  shards[0] = Shard({At(0, {kNext, 5})}, kNext);
  shards[1] = Shard({At(1, {kNext, 5})}, kNext);
  decision = DecideRecovery(shards, true, kNext + 1, Complete(checkpoint));
  EXPECT_EQ(decision.kind, Kind::kRewind);
  EXPECT_EQ(decision.target, (VersionId{kNext + 1, 5}));
}

TEST(RecoveryPlanTest, ACheckpointOfJustTheBaseIsACopyThatIsNotPrepared) {
  std::vector<ShardInventory> shards = PreparedRing(4, kSeven);
  shards[1] = New();
  shards[2] = New();
  const RecoveryDecision decision = Decide(shards, kSeven);
  EXPECT_EQ(decision.kind, Kind::kLoad);
  EXPECT_EQ(decision.target, kSeven);
  EXPECT_EQ(decision.checkpoint, kSeven);
  EXPECT_THAT(Homes(decision), ElementsAre(kKeep, kLoad, kVoid, kKeep));
  EXPECT_THAT(Replicas(decision), ElementsAre(kKeep, kVoid, kVoid, kKeep));
  EXPECT_TRUE(decision.fetch);
}

TEST(RecoveryPlanTest, EverythingWasKilled) {
  const RecoveryDecision decision = Decide({New(), New()}, kSeven);
  EXPECT_EQ(decision.kind, Kind::kRewind);
  EXPECT_EQ(decision.target, (VersionId{kNext, 7}));
}

// Row 18: a frozen process thaws under its name.
TEST(RecoveryPlanTest, WhoMissedAnEpochHasNoCopies) {
  std::vector<ShardInventory> shards = RingAt(3, kSeven);
  shards[2] = Shard({At(2, {5, 9}), At(1, {5, 9})}, 5);
  RecoveryDecision decision = Decide(shards);
  EXPECT_EQ(decision.target, kSeven);
  EXPECT_THAT(Homes(decision), ElementsAre(kKeep, kKeep, kVoid));
  EXPECT_THAT(decision.text, HasSubstr("2 more missed an epoch"));
  // What a later epoch has begun to prepare is enough to know.
  for (ShardInventory& shard : shards) shard.copies[0].id = {5, 9};
  for (ShardInventory& shard : shards) shard.copies[1].id = {5, 9};
  shards[0].copies[0].prepared_by = kEpoch;
  decision = Decide(shards);
  EXPECT_THAT(Homes(decision), ElementsAre(kKeep, kKeep, kVoid));
}

TEST(RecoveryPlanTest, AllMissedAnEpoch) {
  const std::vector<ShardInventory> shards = {Shard({At(0, kSeven)}, 5),
                                              Shard({At(1, kSeven)}, 5)};
  EXPECT_EQ(Decide(shards).kind, Kind::kUnseeded);
  EXPECT_EQ(Decide(shards, VersionId{2, 2}).kind, Kind::kRewind);
}

TEST(RecoveryPlanTest, ANewerCheckpointProvesCopiesOfThePast) {
  const RecoveryDecision decision = Decide(RingAt(2, kSeven), VersionId{11, 3});
  EXPECT_EQ(decision.kind, Kind::kRewind);
  EXPECT_EQ(decision.target, (VersionId{kNext, 3}));
  EXPECT_EQ(Decide(RingAt(2, kSeven), VersionId{10, 6}).kind, Kind::kGoOn);
}

// --- Homes alone -------------------------------------------------------------

TEST(RecoveryPlanAloneTest, NothingWasLost) {
  const RecoveryDecision decision =
      DecideAlone({Shard({At(0, kSeven)}), Shard({At(1, kSeven)})});
  EXPECT_EQ(decision.kind, Kind::kGoOn);
  EXPECT_EQ(decision.target, kSeven);
  EXPECT_THAT(Homes(decision), ElementsAre(kKeep, kKeep));
  EXPECT_FALSE(decision.fetch);
  EXPECT_EQ(decision.text, "2 of 2 copies reach version 7 of epoch 10");
}

TEST(RecoveryPlanAloneTest, AllUpdatedOrSomePublished) {
  const std::vector<CopyAction> step_both = {kStep, kStep};
  RecoveryDecision decision =
      DecideAlone({Shard({Prepared(0, kSeven)}), Shard({Prepared(1, kSeven)})});
  EXPECT_EQ(decision.target, kEight);
  EXPECT_EQ(Homes(decision), step_both);
  decision =
      DecideAlone({Shard({At(0, kEight)}), Shard({Prepared(1, kSeven)})});
  EXPECT_EQ(decision.target, kEight);
  EXPECT_THAT(Homes(decision), ElementsAre(kKeep, kStep));
  EXPECT_FALSE(decision.fetch);
}

// The arrays of the first hold version 8 already, those of the second cannot.
TEST(RecoveryPlanAloneTest, AnUpdateOnSomeRewinds) {
  const std::vector<ShardInventory> shards = {Shard({Prepared(0, kSeven)}),
                                              Shard({At(1, kSeven)})};
  EXPECT_EQ(DecideAlone(shards).kind, Kind::kUnseeded);
  EXPECT_EQ(DecideAlone(shards, VersionId{10, 4}).kind, Kind::kRewind);
  const RecoveryDecision decision = DecideAlone(shards, kSeven);
  EXPECT_EQ(decision.kind, Kind::kLoad);
  EXPECT_EQ(decision.target, kSeven);
  EXPECT_THAT(Homes(decision), ElementsAre(kLoad, kKeep));
}

TEST(RecoveryPlanAloneTest, AnUpdateThatWasCutIsNoVersion) {
  const std::vector<ShardInventory> shards = {Shard({InPart(0, kSeven)})};
  EXPECT_EQ(DecideAlone(shards).kind, Kind::kUnseeded);
  // Nothing of version 7 is lost for good: no new history is needed.
  const RecoveryDecision decision = DecideAlone(shards, kSeven);
  EXPECT_EQ(decision.kind, Kind::kLoad);
  EXPECT_EQ(decision.target, kSeven);
}

TEST(RecoveryPlanAloneTest, ALostShardRewinds) {
  const std::vector<ShardInventory> shards = {Shard({At(0, kSeven)}), New()};
  EXPECT_EQ(DecideAlone(shards).kind, Kind::kUnseeded);
  const RecoveryDecision decision = DecideAlone(shards, VersionId{9, 6});
  EXPECT_EQ(decision.kind, Kind::kRewind);
  EXPECT_EQ(decision.target, (VersionId{kNext, 6}));
  EXPECT_FALSE(decision.fetch);
}

TEST(RecoveryPlanAloneTest, CopiesOfNobodysPartAreNotLookedAt) {
  EXPECT_EQ(DecideAlone({Shard({At(1, kSeven), At(-1, kSeven)}), New()}).kind,
            Kind::kNothing);
  EXPECT_EQ(Decide({Shard({At(3, kSeven), At(-1, kSeven)}), New()}).kind,
            Kind::kNothing);
}

}  // namespace
}  // namespace agg
