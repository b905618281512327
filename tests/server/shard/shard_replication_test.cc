// Parts with second copies (P15, P17): engines connected directly.
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/optimizer_step.h"
#include "proto/shard_plan.h"
#include "server/round/neighbour_peer.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"
#include "server/round/shard_options.h"
#include "server/shard/shard_replica.h"
#include "tests/server/base/sim_disk.h"
#include "tests/server/shard/shard_ring.h"

namespace agg {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

ShardOptions Options(OptimizerKind kind, bool replicated) {
  ShardOptions options;
  options.max_workers = 3;
  options.workers = 2;
  options.life = 100;
  options.optimizer.kind = kind;
  options.groups = {{"slow", 0.25f, 0.5f}};
  options.replicated = replicated;
  return options;
}

// The bits of a run without second copies that nothing disturbs.
Tensors Undisturbed(uint64_t rounds,
                    OptimizerKind kind = OptimizerKind::kAdam) {
  ShardRing ring(1, Options(kind, false), RingTensors());
  ring.Begin();
  for (uint64_t round = 0; round < rounds; ++round) ring.RunRound(round);
  return *ring.Pull(rounds);
}

// After a phase that leaves no step to be taken.
void ExpectEqualCopies(ShardRing* ring, const VersionId& id) {
  for (int i = 0; i < ring->num_shards(); ++i) {
    const int buddy = (i + 1) % ring->num_shards();
    EXPECT_EQ(ring->CopyOf(i, i, id), ring->CopyOf(buddy, i, id))
        << "part " << i;
  }
}

TEST(ShardReplicationTest, TheSecondCopyHasTheBitsOfTheFirst) {
  for (const OptimizerKind kind :
       {OptimizerKind::kAdam, OptimizerKind::kSgd, OptimizerKind::kAdagrad,
        OptimizerKind::kLamb}) {
    for (const int num_shards : {2, 3, 7}) {
      ShardRing ring(num_shards, Options(kind, true), RingTensors());
      ring.Begin();
      ExpectEqualCopies(&ring, {ring.epoch(), 0});
      EXPECT_EQ(ring.engine(0)->Record(), "of 0");
      for (uint64_t round = 0; round < 3; ++round) ring.RunRound(round);
      EXPECT_EQ(*ring.Pull(3), Undisturbed(3, kind));
      EXPECT_EQ(ring.engine(0)->Record(), "of 3");
      ring.Attach();
      ring.Recover();  // the last step is taken, at the latest, now
      ExpectEqualCopies(&ring, {1, 3});
    }
  }
}

// Without threads the replica steps in its shard's next phase.
TEST(ShardReplicationTest, NoThreadIsNeeded) {
  ShardOptions options = Options(OptimizerKind::kAdam, true);
  options.early_gram = false;
  options.background = false;
  ShardRing ring(3, options, RingTensors());
  ring.Begin();
  for (uint64_t round = 0; round < 3; ++round) ring.RunRound(round);
  EXPECT_EQ(*ring.Pull(3), Undisturbed(3));
  // A replica one behind: stepped by the recovery.
  const std::vector<ShardInventory> inventories = ring.Attach();
  ASSERT_THAT(inventories[1].copies, SizeIs(2));
  EXPECT_EQ(inventories[1].copies[1].part, 0);
  EXPECT_EQ(inventories[1].copies[1].id.version, 2u);
  EXPECT_TRUE(inventories[1].copies[1].whole);
  EXPECT_TRUE((ring.Recover() == VersionId{1, 3}));
  ExpectEqualCopies(&ring, {1, 3});
}

TEST(ShardReplicationTest, ALostShardGetsBothOfItsCopiesBack) {
  for (const int num_shards : {2, 3}) {
    ShardRing ring(num_shards, Options(OptimizerKind::kAdam, true),
                   RingTensors());
    ring.Begin();
    uint64_t round = 0;
    for (int victim = 0; victim < num_shards; ++victim) {
      ring.RunRound(round);
      ++round;
      ring.Restart(victim);
      ring.Attach();
      const VersionId id = ring.Recover();
      EXPECT_EQ(id.version, round);
      ExpectEqualCopies(&ring, id);
      EXPECT_EQ(*ring.Pull(round), Undisturbed(round));
      EXPECT_EQ(ring.engine(0)->Record(), "of " + std::to_string(round));
    }
    ring.RunRound(round);
    EXPECT_EQ(*ring.Pull(round + 1), Undisturbed(round + 1));
  }
}

// One shard dies behind each phase on each shard of a round.
TEST(ShardReplicationTest, AShardMayDieAnywhereInARound) {
  const Tensors expected = Undisturbed(3);
  int num_forward = 0;
  for (const int num_shards : {2, 3}) {
    for (int steps = 0; steps <= 3 * num_shards; ++steps) {
      for (int victim = 0; victim < num_shards; ++victim) {
        ShardRing ring(num_shards, Options(OptimizerKind::kAdam, true),
                       RingTensors());
        ring.Begin();
        ring.RunRound(0);
        ring.Push(1, 0);
        ring.Push(1, 1);
        int step = 0;
        for (const PhaseKind kind :
             {PhaseKind::kClose, PhaseKind::kUpdate, PhaseKind::kPublish}) {
          for (int i = 0; i < num_shards && step < steps; ++i, ++step) {
            ASSERT_EQ(ring.RunOn(i, kind, 1).status(), absl::OkStatus());
          }
        }
        ring.Restart(victim);
        ring.Attach();
        const VersionId id = ring.Recover();
        ExpectEqualCopies(&ring, id);
        // What somebody could have pulled is never taken back.
        if (steps > 2 * num_shards) {
          EXPECT_EQ(id.version, 2u);
        }
        if (id.version == 2) ++num_forward;
        for (uint64_t round = id.version; round < 3; ++round) {
          ring.RunRound(round);
        }
        ASSERT_EQ(*ring.Pull(3), expected)
            << num_shards << " shards, " << victim << " dies after " << steps;
      }
    }
  }
  EXPECT_GT(num_forward, 10);
}

TEST(ShardReplicationTest, WhatSomeHavePreparedIsDropped) {
  ShardRing ring(3, Options(OptimizerKind::kAdam, true), RingTensors());
  ring.Begin();
  ring.Push(0, 0);
  ring.Push(0, 1);
  ring.RunAll(ring.MakePhase(PhaseKind::kClose));
  ring.Cut(1);
  // Its combined gradient has nowhere to go: the arrays are as they were.
  const absl::Status failed = ring.RunOn(0, PhaseKind::kUpdate, 0).status();
  EXPECT_EQ(failed, absl::UnavailableError("shard 1 is gone"));
  ring.Cut(1, false);
  ASSERT_EQ(ring.RunOn(1, PhaseKind::kUpdate, 0).status(), absl::OkStatus());
  const uint64_t prepared_by = ring.epoch();
  const std::vector<ShardInventory> inventories = ring.Attach();
  EXPECT_EQ(inventories[0].copies[0].prepared_by, prepared_by);
  EXPECT_FALSE(inventories[0].copies[0].whole);
  EXPECT_TRUE(inventories[1].copies[0].whole);
  EXPECT_EQ(inventories[2].copies[0].prepared_by, 0u);
  EXPECT_EQ(inventories[2].copies[1].prepared_by, prepared_by);
  EXPECT_FALSE(inventories[2].copies[1].whole);  // its plan is missing
  EXPECT_TRUE((ring.Recover() == VersionId{prepared_by, 0}));
  // The rows are there, and another plan may follow: other coefficients.
  ring.RunRound(0);
  EXPECT_EQ(*ring.Pull(1), Undisturbed(1));
}

TEST(ShardReplicationTest, AVersionIsPublishedOnlyIfItHasTwoCopies) {
  ShardRing ring(2, Options(OptimizerKind::kAdam, true), RingTensors());
  ring.Begin();
  ring.Push(0, 0);
  ring.Push(0, 1);
  ring.RunAll(ring.MakePhase(PhaseKind::kClose));
  ASSERT_EQ(ring.RunOn(0, PhaseKind::kUpdate, 0).status(), absl::OkStatus());
  EXPECT_THAT(ring.RunOn(0, PhaseKind::kPublish, 0).status().message(),
              HasSubstr("version 1 has no second copy: part 1"));
  // A skipped round has to be prepared, too.
  Phase skip = ring.MakePhase(PhaseKind::kPublish);
  skip.publish.unchanged = true;
  EXPECT_THAT(ring.Run(1, skip).status().message(),
              HasSubstr("round 0 has not been updated"));
}

TEST(ShardReplicationTest, ASeedIsShownOnlyIfItHasTwoCopies) {
  ShardRing ring(2, Options(OptimizerKind::kAdam, true), RingTensors());
  ring.Attach();
  ring.Join(2);
  ring.LandSeed();
  Phase publish = ring.MakePhase(PhaseKind::kPublish);
  publish.publish.version = 0;
  publish.publish.seed = true;
  publish.publish.seed_session = ShardRing::kFirstSession;
  EXPECT_THAT(ring.Run(0, publish).status().message(),
              HasSubstr("version 0 has no second copy: part 1 is void"));
}

// As a coordinator asks all shards for a phase; with threads that step.
TEST(ShardReplicationTest, AllShardsRunAPhaseAtTheSameTime) {
  constexpr int kShards = 3;
  constexpr uint64_t kRounds = 20;
  ShardRing ring(kShards, Options(OptimizerKind::kAdam, true), RingTensors());
  ring.Begin();
  for (uint64_t round = 0; round < kRounds; ++round) {
    ring.Push(round, 0);
    ring.Push(round, 1);
    for (const PhaseKind kind :
         {PhaseKind::kClose, PhaseKind::kUpdate, PhaseKind::kPublish}) {
      std::vector<std::thread> threads;
      for (int i = 0; i < kShards; ++i) {
        threads.emplace_back([&ring, i, kind, round] {
          EXPECT_EQ(ring.RunOn(i, kind, round).status(), absl::OkStatus());
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
  }
  EXPECT_EQ(*ring.Pull(kRounds), Undisturbed(kRounds));
  // Lost copies are fetched from each other at the same time, too.
  ring.Restart(1);
  ring.Attach();
  const VersionId target{1, kRounds};
  ring.RecoverBefore(target);
  Phase fetch = ring.MakePhase(PhaseKind::kFetch);
  fetch.id = target;
  std::vector<std::thread> threads;
  for (int i = 0; i < kShards; ++i) {
    threads.emplace_back([&ring, i, fetch] {
      EXPECT_EQ(ring.Run(i, fetch).status(), absl::OkStatus());
    });
  }
  for (std::thread& thread : threads) thread.join();
  ExpectEqualCopies(&ring, target);
}

TEST(ShardReplicationTest, ASkippedRoundIsPreparedByThePlanAlone) {
  ShardRing ring(3, Options(OptimizerKind::kAdam, true), RingTensors());
  ring.Begin();
  ring.RunRound(0);
  Phase skip = ring.MakePhase(PhaseKind::kUpdate, 1);
  skip.publish.unchanged = true;
  skip.record = std::make_shared<const std::string>("of 2");
  ring.RunAll(skip);
  ring.Restart(2);
  ring.Attach();
  EXPECT_EQ(ring.Recover().version, 2u);
  EXPECT_EQ(*ring.Pull(2), Undisturbed(1));
  skip = ring.MakePhase(PhaseKind::kUpdate, 2);
  skip.publish.unchanged = true;
  ring.RunAll(skip);
  skip.kind = PhaseKind::kPublish;
  ring.RunAll(skip);
  EXPECT_EQ(*ring.Pull(3), Undisturbed(1));
  ring.Attach();
  ExpectEqualCopies(&ring, ring.Recover());
}

TEST(ShardReplicationTest, AFetchThatIsCutLeavesAVoidCopy) {
  ShardRing ring(3, Options(OptimizerKind::kAdam, true), RingTensors());
  ring.Begin();
  ring.RunRound(0);
  ring.Restart(1);
  ring.Attach();
  // A replica steps in the background: it may have to do so only now.
  ring.RecoverBefore({1, 1});
  Phase fetch = ring.MakePhase(PhaseKind::kFetch);
  fetch.id = {1, 1};
  ring.Cut(0);
  EXPECT_TRUE(absl::IsUnavailable(ring.Run(1, fetch).status()));
  Phase open = ring.MakePhase(PhaseKind::kOpen);
  open.id = {1, 1};
  EXPECT_THAT(ring.Run(1, open).status().message(),
              HasSubstr("part 0 is void"));
  ring.Cut(0, false);
  EXPECT_THAT(ring.Attach()[1].copies, SizeIs(1));
  ExpectEqualCopies(&ring, ring.Recover());
  ring.RunRound(1);
  EXPECT_EQ(*ring.Pull(2), Undisturbed(2));
}

TEST(ShardReplicationTest, AfterARewindTheSecondCopiesAreFetched) {
  SimDisk disk;
  ASSERT_TRUE(disk.CreateFolder("/disk").ok());
  ShardRing ring(3, Options(OptimizerKind::kAdam, true), RingTensors());
  ring.UseCheckpoints(&disk);
  ring.Begin();
  ring.RunRound(0);
  const std::string checkpoint = ring.TakeCheckpoint({1, 1});
  ring.RunRound(1);
  ring.Restart(1);
  ring.Restart(2);  // neighbours: part 1 is lost
  ring.Attach();
  ring.SetManifest();
  Phase recover = ring.MakePhase(PhaseKind::kRecover);
  recover.recover.target = {ring.epoch(), 1};
  recover.recover.home = CopyAction::kLoad;
  recover.checkpoint = checkpoint;
  ring.RunAll(recover);
  Phase fetch = ring.MakePhase(PhaseKind::kFetch);
  fetch.id = recover.recover.target;
  ring.RunAll(fetch);
  ring.Join(2);
  Phase open = ring.MakePhase(PhaseKind::kOpen);
  open.id = fetch.id;
  ring.RunAll(open);
  ExpectEqualCopies(&ring, fetch.id);
  EXPECT_EQ(ring.engine(0)->Record(), "the record");
  for (uint64_t round = 1; round < 3; ++round) ring.RunRound(round);
  EXPECT_EQ(*ring.Pull(3), Undisturbed(3));
}

TEST(ShardReplicationTest, SecondCopiesAreInTheMemoryPlan) {
  ShardRing without(2, Options(OptimizerKind::kAdam, false), RingTensors());
  ShardRing with(2, Options(OptimizerKind::kAdam, true), RingTensors());
  for (ShardRing* ring : {&without, &with}) {
    ring->Attach();
    ring->SetManifest();
  }
  int64_t more = 0;
  for (int i = 0; i < 2; ++i) {
    more += with.engine(i)->Status().memory_planned_bytes -
            without.engine(i)->Status().memory_planned_bytes;
  }
  // Both parts, with what slices are padded by: combined, incoming, and a
  // replica of three arrays. Each shard fetches or sends both parts.
  const int64_t padded = 64 + 32 + 32 + 64;
  EXPECT_EQ(more, padded * 4 * (1 + 1 + 3) + 2 * (padded * 4 + 4 * (4 << 20)));
}

// A neighbour's frames, as a shard with its replica takes them.

ShardOptions ReplicaOptions() {
  ShardOptions options;
  options.max_workers = 2;
  options.groups = {{"slow", 0.25f, 0.5f}};
  options.replicated = true;
  return options;
}

// P17: it waits for that step, and for no phase.
TEST(ShardReplicaTest, AFrameOfTheNextRoundWaitsForTheStep) {
  ShardOptions options = ReplicaOptions();
  options.background = false;
  ShardRing ring(2, options, RingTensors());
  ring.Begin();
  ring.RunRound(0);
  const ShardPlan plan = *MakeShardPlan(RingTensors(), 2);
  CopySlice slice;
  slice.slice = plan.slices_of_shard[0][0];
  const std::vector<float> values(
      static_cast<size_t>(plan.slices[slice.slice].num_elements));
  slice.values = values;
  const CopyHeader header{ring.epoch(), 0, {ring.epoch(), 1}};
  absl::Status landed = absl::UnknownError("");
  std::thread frame(
      [&] { landed = ring.engine(1)->SendCombined(header, slice); });
  ring.Push(1, 0);
  ring.Push(1, 1);
  ASSERT_EQ(ring.RunOn(1, PhaseKind::kClose, 1).status(), absl::OkStatus());
  frame.join();
  EXPECT_EQ(landed, absl::OkStatus());
}

TEST(ShardReplicaTest, AFrameThatWaitsEndsWithTheEpoch) {
  ShardOptions options = ReplicaOptions();
  options.background = false;
  ShardRing ring(2, options, RingTensors());
  ring.Begin();
  ring.RunRound(0);
  CopySlice slice;
  const CopyHeader header{ring.epoch(), 0, {ring.epoch(), 1}};
  absl::Status landed;
  std::thread frame(
      [&] { landed = ring.engine(1)->SendCombined(header, slice); });
  ring.Attach();
  frame.join();
  EXPECT_TRUE(absl::IsAborted(landed)) << landed;
}

TEST(ShardReplicaTest, RefusesOtherFrames) {
  ShardRing ring(3, ReplicaOptions(), RingTensors());
  ring.Begin();
  const uint64_t epoch = ring.epoch();
  CopySlice slice;
  const auto send = [&](const CopyHeader& header) {
    return ring.engine(1)->SendCombined(header, slice);
  };
  EXPECT_TRUE(absl::IsAborted(send({epoch - 1, 0, {epoch, 0}})));
  EXPECT_TRUE(absl::IsInvalidArgument(send({epoch, 2, {epoch, 0}})));
  EXPECT_TRUE(absl::IsFailedPrecondition(send({epoch, 0, {epoch, 3}})));
  slice.slice = 1 << 20;
  EXPECT_TRUE(absl::IsInvalidArgument(send({epoch, 0, {epoch, 0}})));
  EXPECT_TRUE(absl::IsFailedPrecondition(
      ring.engine(1)->FinishCombined({epoch, 0, {epoch, 0}})));
  CopySink sink;
  EXPECT_TRUE(absl::IsFailedPrecondition(
      ring.engine(1)->Fetch({epoch, 1, {epoch, 1}}, sink)));
  EXPECT_TRUE(absl::IsInvalidArgument(
      ring.engine(1)->Fetch({epoch, 2, {epoch, 0}}, sink)));
}

}  // namespace
}  // namespace agg
