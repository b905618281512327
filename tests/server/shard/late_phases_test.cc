// Phases that come a second time, or so late that the round has gone on (P7).
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/round/phase.h"
#include "server/round/shard_options.h"
#include "tests/server/shard/ring_test.h"
#include "tests/server/shard/shard_ring.h"

namespace agg {
namespace {

using testing::HasSubstr;

ShardOptions Replicated() {
  ShardOptions options = Adam();
  options.replicated = true;
  return options;
}

class LatePhasesTest : public RingTest {
 protected:
  LatePhasesTest() : copies_(2, Replicated(), RingTensors()) {}

  static void Begin(ShardRing* ring) {
    ring->Attach();
    ring->Join(2);
    ring->Seed();
  }
  // Round 0 is closed and prepared on all shards.
  static void Prepare(ShardRing* ring) {
    for (int32_t rank = 0; rank < 2; ++rank) ring->Push(0, rank);
    for (const PhaseKind kind : {PhaseKind::kClose, PhaseKind::kUpdate}) {
      for (int i = 0; i < ring->num_shards(); ++i) {
        ASSERT_EQ(ring->RunOn(i, kind, 0).status(), absl::OkStatus());
      }
    }
  }

  ShardRing copies_;  // with second copies; ring_ is without
};

TEST_F(LatePhasesTest, ARepeatedPublishNamesTheSliceThatIsNotFinite) {
  Begin(&copies_);
  for (int32_t rank = 0; rank < 2; ++rank) copies_.Push(0, rank);
  copies_.RunAll(copies_.MakePhase(PhaseKind::kClose));
  Phase update = copies_.MakePhase(PhaseKind::kUpdate);
  update.step.learning_rate = std::numeric_limits<double>::infinity();
  update.replica_step = update.step;
  update.replica_step.coefficients.clear();
  copies_.RunAll(update);
  const Phase publish = copies_.MakePhase(PhaseKind::kPublish);
  for (int i = 0; i < 2; ++i) {
    const absl::StatusOr<PhaseResult> first = copies_.Run(i, publish);
    ASSERT_EQ(first.status(), absl::OkStatus());
    EXPECT_GE(first->not_finite_slice, 0);
    // The first answer is lost on its way.
    EXPECT_EQ(copies_.Run(i, publish)->not_finite_slice,
              first->not_finite_slice);
  }
}

TEST_F(LatePhasesTest, ASeedIsLoadedOnlyBeforeTheFirstVersion) {
  Begin(&copies_);
  Phase load = copies_.MakePhase(PhaseKind::kLoadSeed);
  load.publish.seed = true;
  load.publish.seed_session = ShardRing::kFirstSession;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(copies_.Run(i, load).status(), absl::OkStatus());  // a repeat
  }
  copies_.RunRound(0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(copies_.Run(i, load).status(),
              absl::FailedPreconditionError("load_seed: the job is seeded"));
  }
  copies_.RunRound(1);
  EXPECT_EQ(*copies_.Pull(2), Undisturbed(2));
}

TEST_F(LatePhasesTest, ARoundThatIsPreparedIsNotAbandoned) {
  for (ShardRing* ring : {&ring_, &copies_}) {
    Begin(ring);
    Prepare(ring);
    for (int i = 0; i < 2; ++i) {
      const absl::Status status =
          ring->Run(i, ring->MakePhase(PhaseKind::kAbandon)).status();
      EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat("abandon: part ", i,
                                         " is at version 0 (made by epoch 1), "
                                         "prepared by epoch 1")));
    }
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(ring->RunOn(i, PhaseKind::kPublish, 0).status(),
                absl::OkStatus());
    }
    ring->RunRound(1);
    EXPECT_EQ(*ring->Pull(2), Undisturbed(2));
  }
}

}  // namespace
}  // namespace agg
