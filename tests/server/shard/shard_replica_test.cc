// A neighbour's frames, as a shard with its replica takes them.
#include "server/shard/shard_replica.h"

#include <cstdint>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "proto/shard_plan.h"
#include "server/round/neighbour_peer.h"
#include "server/round/phase.h"
#include "server/round/shard_options.h"
#include "tests/server/shard/shard_ring.h"

namespace agg {
namespace {

ShardOptions Options() {
  ShardOptions options;
  options.max_workers = 2;
  options.groups = {{"slow", 0.25f, 0.5f}};
  options.replicated = true;
  return options;
}

void Begin(ShardRing* ring) {
  ring->Attach();
  ring->Join(2);
  ring->Seed();
}

// P17: it waits for that step, and for no phase.
TEST(ShardReplicaTest, AFrameOfTheNextRoundWaitsForTheStep) {
  ShardOptions options = Options();
  options.step_early = false;
  ShardRing ring(2, options, RingTensors());
  Begin(&ring);
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
  ShardOptions options = Options();
  options.step_early = false;
  ShardRing ring(2, options, RingTensors());
  Begin(&ring);
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
  ShardRing ring(3, Options(), RingTensors());
  Begin(&ring);
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
