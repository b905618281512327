// What a shard keeps when an epoch ends, and how it goes on (P18 to P20).
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shard_plan.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"
#include "server/round/shard_peer.h"
#include "tests/server/round/reply.h"
#include "tests/server/shard/ring_test.h"
#include "tests/server/shard/shard_ring.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using ShardRecoveryTest = RingTest;

TEST_F(ShardRecoveryTest, AnUnseededShardForgetsAndIsOpenAtOnce) {
  std::vector<ShardInventory> inventories = ring_.Attach();
  EXPECT_EQ(inventories[0].life, 100u);
  EXPECT_EQ(inventories[1].life, 101u);
  EXPECT_FALSE(inventories[0].has_manifest);
  EXPECT_THAT(inventories[0].copies, IsEmpty());
  ring_.Join(2);
  inventories = ring_.Attach();
  EXPECT_FALSE(inventories[0].has_manifest);
  EXPECT_THAT(inventories[0].members, IsEmpty());
  // Session numbers grow all the same.
  EXPECT_EQ(inventories[0].highest_session, ShardRing::kFirstSession + 1);
  ring_.Join(2);
  ring_.Seed();
  EXPECT_TRUE(ring_.Pull(0).ok());
}

TEST_F(ShardRecoveryTest, ASeededShardSaysWhatItHolds) {
  Begin();
  const uint64_t epoch = ring_.epoch();
  ring_.RunRound(0);
  SessionChange leaves;
  leaves.session = ShardRing::kFirstSession + 1;
  leaves.rank = 1;
  leaves.remove = true;
  SessionChange joins;
  joins.session = 9000;
  joins.rank = 2;
  joins.first_round = 1;
  joins.client = "somebody";
  for (const SessionChange& change : {leaves, joins}) {
    ASSERT_EQ(ring_.engine(0)->SetSession(epoch, change), absl::OkStatus());
  }
  ASSERT_EQ(ring_.engine(0)->SetFacts(epoch, {epoch, 2, "two"}),
            absl::OkStatus());
  ASSERT_EQ(ring_.engine(0)->SetFacts(epoch, {epoch, 1, "one"}),
            absl::OkStatus());  // older ones come too late
  const ShardInventory inventory = ring_.Attach()[0];
  EXPECT_EQ(inventory.member_epoch, epoch);
  EXPECT_TRUE(inventory.has_manifest);
  ASSERT_THAT(inventory.copies, SizeIs(1));
  EXPECT_EQ(inventory.copies[0].part, 0);
  EXPECT_TRUE((inventory.copies[0].id == VersionId{epoch, 1}));
  EXPECT_EQ(inventory.copies[0].prepared_by, 0u);
  ASSERT_THAT(inventory.members, SizeIs(2));
  EXPECT_EQ(inventory.members[1].rank, 2);
  EXPECT_EQ(inventory.members[1].session, 9000u);
  EXPECT_EQ(inventory.members[1].first_round, 1u);
  EXPECT_EQ(inventory.members[1].client, "somebody");
  EXPECT_THAT(inventory.ended_sessions, ElementsAre(leaves.session));
  EXPECT_EQ(inventory.highest_session, 9000u);
  EXPECT_EQ(inventory.facts.text, "two");
  EXPECT_EQ(*ring_.engine(0)->Promise(), ring_.epoch());
  // The same from the shard that knows it, for one that does not.
  const auto manifest = ring_.engine(1)->GetManifest(ring_.epoch());
  ASSERT_TRUE(manifest.ok());
  EXPECT_EQ(CompareManifests(*manifest, RingTensors()), absl::OkStatus());
}

TEST_F(ShardRecoveryTest, WorkersAreRefusedUntilItIsOpen) {
  Begin();
  ring_.RunRound(0);
  Reply<absl::StatusOr<PublishedVersion>> waiting;
  ring_.engine(0)->Pull(0, 2, false, waiting.callback());
  const uint64_t before = ring_.epoch();
  ring_.Attach();
  EXPECT_EQ(waiting.Get().status(),
            absl::UnavailableError("shard 0 is recovering"));
  const auto pull = [&](uint64_t epoch) {
    Reply<absl::StatusOr<PublishedVersion>> reply;
    ring_.engine(0)->Pull(epoch, 1, false, reply.callback());
    return reply.Get().status();
  };
  EXPECT_EQ(pull(0), absl::UnavailableError("shard 0 is recovering"));
  EXPECT_EQ(pull(ring_.epoch()),
            absl::UnavailableError("shard 0 is recovering"));
  EXPECT_TRUE(absl::IsAborted(pull(before)));
  EXPECT_EQ(ring_.PushTo(0, 1, 0).status(),
            absl::UnavailableError("shard 0 is recovering"));
  // Rounds, too.
  EXPECT_THAT(Error(ring_.MakePhase(PhaseKind::kClose, 1)).message(),
              HasSubstr("phase close of a shard that is recovering; part 0 is "
                        "at version 1"));
  Phase open = ring_.MakePhase(PhaseKind::kOpen);
  open.id = {before, 1};
  EXPECT_TRUE(absl::IsInternal(Error(open)));  // nothing was recovered yet
  ASSERT_EQ(Error(Recover(CopyAction::kKeep, open.id)), absl::OkStatus());
  EXPECT_EQ(ring_.PushTo(0, 1, 0).status(),
            absl::UnavailableError("shard 0 is recovering"));
  ++open.id.version;
  EXPECT_THAT(Error(open).message(), HasSubstr("open of version 2"));
  EXPECT_TRUE(absl::IsInternal(Error(open)));
  --open.id.version;
  ASSERT_EQ(Error(open), absl::OkStatus());
  EXPECT_EQ(pull(0), absl::OkStatus());
  EXPECT_EQ(pull(ring_.epoch()), absl::OkStatus());
  EXPECT_EQ(ring_.PushTo(0, 1, 0).status(), absl::OkStatus());
}

TEST_F(ShardRecoveryTest, RowsStayLanded) {
  Begin();
  ring_.RunRound(0);
  const uint64_t made = ring_.epoch();
  ring_.Push(1, 0);
  ring_.Attach();
  ring_.RecoverAll(CopyAction::kKeep, {made, 1});
  // The first worker need not push again.
  ring_.Push(1, 1);
  for (const PhaseKind kind :
       {PhaseKind::kClose, PhaseKind::kUpdate, PhaseKind::kPublish}) {
    ring_.RunAll(ring_.MakePhase(kind, 1));
  }
  EXPECT_EQ(*ring_.Pull(2), Undisturbed(2));
}

TEST_F(ShardRecoveryTest, AClosedRoundIsOpenedAgain) {
  Begin();
  const uint64_t made = ring_.epoch();
  ring_.Push(0, 0);
  Phase close = ring_.MakePhase(PhaseKind::kClose, 0);
  close.rows.pop_back();
  ring_.RunAll(close);
  ring_.Attach();
  ring_.RecoverAll(CopyAction::kKeep, {made, 0});
  ring_.RunRound(0);  // with both
  EXPECT_EQ(*ring_.Pull(1), Undisturbed(1));
}

TEST_F(ShardRecoveryTest, AnUpdateThatIsOnAllShardsIsKept) {
  Begin();
  const uint64_t made = ring_.epoch();
  for (int32_t rank = 0; rank < 2; ++rank) ring_.Push(0, rank);
  ring_.RunAll(ring_.MakePhase(PhaseKind::kClose));
  Phase update = ring_.MakePhase(PhaseKind::kUpdate);
  update.record = std::make_shared<const std::string>("of 1");
  ring_.RunAll(update);
  EXPECT_EQ(ring_.engine(0)->Record(), "");
  const ShardInventory inventory = ring_.Attach()[1];
  ASSERT_THAT(inventory.copies, SizeIs(1));
  EXPECT_TRUE((inventory.copies[0].id == VersionId{made, 0}));
  EXPECT_EQ(inventory.copies[0].prepared_by, made);
  EXPECT_TRUE(inventory.copies[0].whole);
  // The arrays are those of version 1.
  EXPECT_THAT(
      Error(Recover(CopyAction::kKeep, {made, 0})).message(),
      HasSubstr("the arrays have the next one: part 0 is at version 0"));
  // A version of another epoch is not what was prepared.
  EXPECT_TRUE(absl::IsFailedPrecondition(
      Error(Recover(CopyAction::kStep, {ring_.epoch(), 1}))));
  ring_.RecoverAll(CopyAction::kStep, {made, 1});
  EXPECT_EQ(*ring_.Pull(1), Undisturbed(1));
  EXPECT_EQ(ring_.engine(0)->Record(), "of 1");
  ring_.RunRound(1);
  EXPECT_EQ(*ring_.Pull(2), Undisturbed(2));
}

TEST_F(ShardRecoveryTest, ASkippedRoundMayBePreparedToo) {
  Begin();
  const uint64_t made = ring_.epoch();
  Phase skip = ring_.MakePhase(PhaseKind::kUpdate);
  skip.publish.unchanged = true;
  skip.record = std::make_shared<const std::string>("of 1");
  ring_.RunAll(skip);
  EXPECT_EQ(ring_.Attach()[0].copies[0].prepared_by, made);
  const Tensors seed = RandomTensors(RingTensors(), 7);
  ring_.RecoverAll(CopyAction::kStep, {made, 1});
  EXPECT_EQ(*ring_.Pull(1), seed);
  EXPECT_EQ(ring_.engine(0)->Record(), "of 1");
  // Without a recovery: its record is the Update's.
  skip = ring_.MakePhase(PhaseKind::kUpdate, 1);
  skip.publish.unchanged = true;
  skip.record = std::make_shared<const std::string>("of 2");
  ring_.RunAll(skip);
  skip.kind = PhaseKind::kPublish;
  skip.record = nullptr;
  ring_.RunAll(skip);
  EXPECT_EQ(*ring_.Pull(2), seed);
  EXPECT_EQ(ring_.engine(0)->Record(), "of 2");
}

TEST_F(ShardRecoveryTest, ALoadedSeedIsShownByARecovery) {
  ring_.Attach();
  ring_.Join(2);
  const uint64_t made = ring_.epoch();
  ring_.LandSeed();
  Phase seed = ring_.MakePhase(PhaseKind::kLoadSeed);
  seed.publish.version = 0;
  seed.publish.seed = true;
  seed.publish.seed_session = ShardRing::kFirstSession;
  ring_.RunAll(seed);
  ring_.RunAll(seed);  // a repeat
  EXPECT_EQ(ring_.Pull(0).status(), absl::UnavailableError("waiting"));
  EXPECT_TRUE((ring_.Attach()[0].copies[0].id == VersionId{made, 0}));
  ring_.RecoverAll(CopyAction::kKeep, {made, 0});
  EXPECT_EQ(*ring_.Pull(0), RandomTensors(RingTensors(), 7));
  ring_.RunRound(0);
  EXPECT_EQ(*ring_.Pull(1), Undisturbed(1));
}

TEST_F(ShardRecoveryTest, AFailedUpdateVoidsTheCopy) {
  Begin();
  for (int32_t rank = 0; rank < 2; ++rank) ring_.Push(0, rank);
  ring_.RunAll(ring_.MakePhase(PhaseKind::kClose));
  Phase update = ring_.MakePhase(PhaseKind::kUpdate);
  update.step.coefficients.pop_back();
  EXPECT_TRUE(absl::IsInvalidArgument(Error(update)));
  const std::vector<ShardInventory> inventories = ring_.Attach();
  EXPECT_THAT(inventories[0].copies, IsEmpty());
  EXPECT_THAT(inventories[1].copies, SizeIs(1));
  // Its rows are gone as with another process: workers push them again.
  EXPECT_EQ(inventories[0].life, 101u);
  EXPECT_EQ(ring_.engine(0)->life(), 101u);
  EXPECT_EQ(inventories[1].life, 101u);
}

TEST_F(ShardRecoveryTest, ARepeatedRecoverChangesNothing) {
  Begin();
  const uint64_t made = ring_.epoch();
  ring_.RunRound(0);
  ring_.Attach();
  const Phase recover = Recover(CopyAction::kKeep, {made, 1});
  ring_.RecoverAll(CopyAction::kKeep, {made, 1});
  ring_.RunRound(1);
  // Its first answer was lost, and has come late.
  EXPECT_EQ(Error(recover), absl::OkStatus());
  EXPECT_EQ(*ring_.Pull(2), Undisturbed(2));
  ring_.RunRound(2);
  EXPECT_EQ(*ring_.Pull(3), Undisturbed(3));
}

TEST_F(ShardRecoveryTest, AnUnseededJobIsForgotten) {
  Begin();
  ring_.RunRound(0);
  ring_.Attach();
  Phase recover = Recover(CopyAction::kVoid, {});
  recover.recover.unseeded = true;
  recover.recover.facts = {ring_.epoch(), 1, "finished"};
  ring_.RunAll(recover);
  ring_.Join(2);
  ring_.RunAll(recover);  // a repeat
  ring_.Seed();
  EXPECT_EQ(*ring_.Pull(0), RandomTensors(RingTensors(), 7));
  ring_.RunRound(0);
  EXPECT_EQ(*ring_.Pull(1), Undisturbed(1));
  EXPECT_EQ(ring_.Attach()[0].facts.text, "finished");
}

// How a shard goes on from a checkpoint (P29, P30).

class ShardRestoreTest : public RingTest {
 protected:
  ShardRestoreTest() { EXPECT_TRUE(disk_.CreateFolder("/disk").ok()); }
};

TEST_F(ShardRestoreTest, ACheckpointGivesTheSameBits) {
  ring_.UseCheckpoints(&disk_);
  Begin();
  const uint64_t made = ring_.epoch();
  ring_.RunRound(0);
  const std::string checkpoint = ring_.TakeCheckpoint({made, 1});
  ring_.RunRound(1);
  // The rows of a past that is given up: same sessions, same round.
  ring_.Push(1 + 1, 0);
  const std::vector<ShardInventory> inventories = ring_.Attach();
  ASSERT_THAT(inventories[0].checkpoints.states, SizeIs(1));
  EXPECT_TRUE(inventories[0].checkpoints.states[0].manifest);
  EXPECT_THAT(inventories[0].checkpoints.states[0].parts, ElementsAre(0, 1));
  const VersionId target{ring_.epoch(), 1};
  ring_.RecoverAll(CopyAction::kLoad, target, checkpoint);
  EXPECT_EQ(*ring_.Pull(1), Undisturbed(1));
  EXPECT_EQ(ring_.engine(0)->Record(), "the record");
  EXPECT_TRUE(absl::IsUnavailable(ring_.Pull(2).status()));  // to come again
  // Round 1 had landed before, and does not count.
  const auto close = ring_.Run(0, ring_.MakePhase(PhaseKind::kClose, 1));
  ASSERT_TRUE(close.ok());
  EXPECT_THAT(close->incomplete_ranks, ElementsAre(0, 1));
  ASSERT_EQ(ring_.Run(0, ring_.MakePhase(PhaseKind::kAbandon, 1)).status(),
            absl::OkStatus());
  for (uint64_t round = 1; round < 4; ++round) ring_.RunRound(round);
  EXPECT_EQ(*ring_.Pull(4), Undisturbed(4));
}

TEST_F(ShardRestoreTest, AnotherNumberOfShardsGivesTheSameBits) {
  ring_.UseCheckpoints(&disk_);
  Begin();
  ring_.RunRound(0);
  const std::string checkpoint = ring_.TakeCheckpoint({ring_.epoch(), 1});
  ring_.RunRound(1);
  const uint64_t promised = ring_.epoch();
  for (const int num_shards : {1, 3, 7}) {
    ShardRing ring(num_shards, Adam(), RingTensors());
    ring.UseCheckpoints(&disk_);
    // A new process has heard of the epochs that made checkpoints.
    EXPECT_EQ(*ring.engine(0)->Promise(), promised);
    ring.Attach();
    ring.SetManifest();
    Phase recover = ring.MakePhase(PhaseKind::kRecover);
    recover.recover.home = CopyAction::kLoad;
    recover.recover.target = {ring.epoch(), 1};
    recover.checkpoint = checkpoint;
    ring.RunAll(recover);
    ring.RunAll(recover);
    ring.Join(2);  // members of the checkpoint, before they are let in
    Phase open = ring.MakePhase(PhaseKind::kOpen);
    open.id = recover.recover.target;
    ring.RunAll(open);
    for (uint64_t round = 1; round < 3; ++round) ring.RunRound(round);
    EXPECT_EQ(*ring.Pull(3), Undisturbed(3)) << num_shards;
  }
}

TEST_F(ShardRestoreTest, ADamagedCheckpointIsNamedAndAnotherOneLoaded) {
  ring_.UseCheckpoints(&disk_);
  Begin();
  const uint64_t made = ring_.epoch();
  const std::string older = ring_.TakeCheckpoint({made, 0});
  ring_.RunRound(0);
  const std::string newer = ring_.TakeCheckpoint({made, 1});
  disk_.FlipBit("/disk/job/1-1/part-00000-of-00002.npz", 1000);
  ring_.Attach();
  Phase verify = ring_.MakePhase(PhaseKind::kVerify);
  verify.checkpoint = newer;
  const absl::Status damaged = Error(verify);
  EXPECT_TRUE(absl::IsDataLoss(damaged));
  EXPECT_THAT(damaged.message(), HasSubstr("part-00000-of-00002.npz"));
  // Each shard its own part, and none has given up what it holds.
  EXPECT_EQ(ring_.engine(1)->RunPhase(verify).status(), absl::OkStatus());
  const std::vector<ShardInventory> inventories = ring_.Attach();
  EXPECT_THAT(inventories[0].copies, SizeIs(1));
  // Where their number has changed each one reads from all parts.
  ShardRing more(3, Adam(), RingTensors());
  more.UseCheckpoints(&disk_);
  more.Attach();
  verify.epoch = more.epoch();
  for (int k : {0, 1, 2}) {
    EXPECT_TRUE(absl::IsDataLoss(more.engine(k)->RunPhase(verify).status()));
  }
  ring_.RecoverAll(CopyAction::kLoad, {ring_.epoch(), 0}, older);
  EXPECT_EQ(*ring_.Pull(0), RandomTensors(RingTensors(), 7));
}

TEST_F(ShardRestoreTest, WithoutAFolderThereIsNothingToLoad) {
  Begin();
  ring_.Attach();
  Phase recover = Recover(CopyAction::kLoad, {ring_.epoch(), 0});
  EXPECT_TRUE(absl::IsDataLoss(Error(recover)));  // no manifest at all
  ring_.RecoverAll(CopyAction::kKeep, {1, 0});
}

}  // namespace
}  // namespace agg
