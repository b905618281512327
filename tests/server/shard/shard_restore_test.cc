// How a shard goes on from a checkpoint (P29, P30).
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"
#include "tests/server/shard/ring_test.h"
#include "tests/server/shard/shard_ring.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

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
