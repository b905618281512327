// Closes that a shard offers (P44), one call at a time.
#include <limits>
#include <memory>
#include <string>
#include <vector>

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
using testing::IsEmpty;
using testing::SizeIs;

using Offers = std::vector<std::shared_ptr<const CloseOffer>>;

// Nothing takes the turn but the test's phases.
ShardOptions Quiet() {
  ShardOptions options = Adam();
  options.early_gram = false;
  options.background = false;
  return options;
}

// The bits that a ring has which is asked to close.
Tensors Undisturbed(uint64_t rounds) {
  ShardRing ring(1, Quiet(), RingTensors());
  ring.Begin();
  for (uint64_t round = 0; round < rounds; ++round) ring.RunRound(round);
  return *ring.Pull(rounds);
}

class ShardOffersTest : public testing::Test {
 protected:
  ShardOffersTest() { Listen(&ring_); }

  void Begin() { ring_.Begin(); }
  void Listen(ShardRing* ring) {
    for (int i = 0; i < ring->num_shards(); ++i) {
      ring->engine(i)->SetOnOffer(
          [this, i](uint64_t epoch, std::shared_ptr<const CloseOffer> offer) {
            epochs_.push_back(epoch);
            offers_[i].push_back(std::move(offer));
          });
    }
  }
  void PushBoth(uint64_t round) {
    ring_.Push(round, 0);
    ring_.Push(round, 1);
  }
  // The update as the coordinator sends it behind an offer.
  Phase Update(uint64_t round) {
    Phase phase = ring_.MakePhase(PhaseKind::kUpdate, round);
    phase.publishes = true;
    return phase;
  }
  // Another row of the same worker, with a higher attempt, on shard 0.
  void PushAttempt(uint64_t round, int32_t rank, uint32_t attempt) {
    FrameHeader header;
    header.epoch = ring_.epoch();
    header.session = ShardRing::kFirstSession + static_cast<uint64_t>(rank);
    header.round = round;
    header.attempt = attempt;
    const ShardPlan plan = *MakeShardPlan(ring_.manifest(), 2);
    const Tensors row = RandomTensors(ring_.manifest(), 99);
    for (const TestFrame& frame : MakeFrames(header, plan, 0, row)) {
      const auto landed = LandFrame(ring_.engine(0), frame);
      ASSERT_EQ(landed.status(), absl::OkStatus());
    }
  }
  absl::Status Run(int shard, const Phase& phase) {
    return ring_.Run(shard, phase).status();
  }

  std::vector<uint64_t> epochs_;
  Offers offers_[2];
  ShardRing ring_{2, Quiet(), RingTensors()};
};

bool SameGrams(const GramList& a, const GramList& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].slice != b[i].slice || a[i].hi != b[i].hi) return false;
  }
  return true;
}

TEST_F(ShardOffersTest, WhatACloseWouldAnswerIsOfferedWithTheLastRow) {
  Begin();
  ring_.Push(0, 1);
  EXPECT_THAT(offers_[0], IsEmpty());
  ring_.Push(0, 0);
  for (int i = 0; i < 2; ++i) {
    ASSERT_THAT(offers_[i], SizeIs(1));
    const CloseOffer& offer = *offers_[i][0];
    const Phase close = ring_.MakePhase(PhaseKind::kClose);
    EXPECT_EQ(offer.round, 0u);
    EXPECT_EQ(offer.rows, close.rows);
    const absl::StatusOr<PhaseResult> asked = ring_.Run(i, close);
    ASSERT_EQ(asked.status(), absl::OkStatus());
    EXPECT_TRUE(SameGrams(offer.result.grams, asked->grams));
    EXPECT_EQ(offer.result.row_crc32c, asked->row_crc32c);
  }
  EXPECT_EQ(epochs_[0], ring_.epoch());
}

TEST_F(ShardOffersTest, TheUpdateClosesTheRound) {
  Begin();
  for (uint64_t round = 0; round < 3; ++round) {
    PushBoth(round);
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(Run(i, Update(round)), absl::OkStatus());
      EXPECT_EQ(ring_.engine(i)->Status().version, round + 1);
      // The answer is lost on its way (P24).
      EXPECT_EQ(Run(i, Update(round)), absl::OkStatus());
    }
  }
  EXPECT_EQ(*ring_.Pull(3), Undisturbed(3));
  EXPECT_THAT(offers_[0], SizeIs(3));
}

TEST_F(ShardOffersTest, NormsAndCompensatedGramsCloseItToo) {
  Begin();
  PushBoth(0);
  Phase compensated = ring_.MakePhase(PhaseKind::kCompensatedGram);
  compensated.tensors = {0};
  EXPECT_EQ(Run(0, compensated), absl::OkStatus());
  EXPECT_EQ(Run(1, ring_.MakePhase(PhaseKind::kNorms)), absl::OkStatus());
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(ring_.PushTo(i, 0, 1)->closed);
    EXPECT_EQ(Run(i, Update(0)), absl::OkStatus());
  }
  EXPECT_EQ(*ring_.Pull(1), Undisturbed(1));
}

TEST_F(ShardOffersTest, OtherRowsThanTheOfferedAreRefusedUntouched) {
  Begin();
  PushBoth(0);
  Phase update = Update(0);
  update.rows.pop_back();
  const absl::Status refused = Run(0, update);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("round 0 is to be closed with rows that are not "
                        "offered"));
  update.rows.clear();
  EXPECT_THAT(std::string(Run(0, update).message()),
              HasSubstr("round 0 has not been closed"));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Run(i, Update(0)), absl::OkStatus());
  EXPECT_EQ(*ring_.Pull(1), Undisturbed(1));
}

TEST_F(ShardOffersTest, ACloseWithFewerRowsEndsTheOffer) {
  Begin();
  PushBoth(0);
  Phase close = ring_.MakePhase(PhaseKind::kClose);
  close.rows.pop_back();
  EXPECT_EQ(Run(0, close), absl::OkStatus());
  const absl::Status refused = Run(0, Update(0));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("closed with other rows before"));
  // Nor does it stand again when the round is opened again.
  EXPECT_EQ(Run(0, ring_.MakePhase(PhaseKind::kAbandon)), absl::OkStatus());
  EXPECT_TRUE(absl::IsFailedPrecondition(Run(0, Update(0))));
  EXPECT_EQ(ring_.PushTo(0, 0, 1).status(), absl::OkStatus());
  EXPECT_THAT(offers_[0], SizeIs(1));
  for (const PhaseKind kind : {PhaseKind::kClose, PhaseKind::kUpdate}) {
    for (int i = 0; i < 2; ++i) {
      Phase phase = ring_.MakePhase(kind);
      phase.publishes = true;
      ASSERT_EQ(Run(i, phase), absl::OkStatus());
    }
  }
  EXPECT_EQ(*ring_.Pull(1), Undisturbed(1));
}

TEST_F(ShardOffersTest, AHigherAttemptDoesNotTouchTheOfferedRow) {
  Begin();
  PushBoth(0);
  PushAttempt(0, 1, 1);
  PushAttempt(0, 1, 2);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Run(i, Update(0)), absl::OkStatus());
  EXPECT_EQ(*ring_.Pull(1), Undisturbed(1));
  EXPECT_THAT(offers_[0], SizeIs(1));
  PushBoth(1);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Run(i, Update(1)), absl::OkStatus());
  EXPECT_EQ(*ring_.Pull(2), Undisturbed(2));
}

TEST_F(ShardOffersTest, AHigherAttemptIsClosedWithAsEver) {
  Begin();
  PushBoth(0);
  PushAttempt(0, 1, 1);
  Phase close = ring_.MakePhase(PhaseKind::kClose);
  close.rows[1].attempt = 1;
  const absl::StatusOr<PhaseResult> asked = ring_.Run(0, close);
  ASSERT_EQ(asked.status(), absl::OkStatus());
  EXPECT_THAT(asked->incomplete_ranks, IsEmpty());
  EXPECT_NE(asked->row_crc32c[1], offers_[0][0]->result.row_crc32c[1]);
  Phase update = Update(0);
  update.rows = close.rows;
  EXPECT_EQ(Run(0, update), absl::OkStatus());
  EXPECT_EQ(Run(1, Update(0)), absl::OkStatus());
  EXPECT_NE(*ring_.Pull(1), Undisturbed(1));
}

TEST_F(ShardOffersTest, ANewSessionOfARankEndsTheOffer) {
  Begin();
  PushBoth(0);
  SessionChange joins;
  joins.session = ShardRing::kFirstSession + 100;
  joins.rank = 1;
  joins.replaces = ShardRing::kFirstSession + 1;
  ASSERT_EQ(ring_.engine(0)->SetSession(ring_.epoch(), joins),
            absl::OkStatus());
  EXPECT_TRUE(absl::IsFailedPrecondition(Run(0, Update(0))));
}

TEST_F(ShardOffersTest, ARowThatIsHeldForItsSessionStays) {
  Begin();
  PushBoth(0);
  SessionChange joins;
  joins.session = ShardRing::kFirstSession + 100;
  joins.rank = 1;
  joins.replaces = ShardRing::kFirstSession + 1;
  joins.keep_row = true;
  joins.first_round = 1;
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(ring_.engine(i)->SetSession(ring_.epoch(), joins),
              absl::OkStatus());
    EXPECT_EQ(Run(i, Update(0)), absl::OkStatus());
  }
  EXPECT_EQ(*ring_.Pull(1), Undisturbed(1));
}

TEST_F(ShardOffersTest, WhoJoinsForTheNextRoundIsNotWaitedFor) {
  Begin();
  SessionChange joins;
  joins.session = ShardRing::kFirstSession + 2;
  joins.rank = 2;
  joins.first_round = 1;
  ASSERT_EQ(ring_.engine(0)->SetSession(ring_.epoch(), joins),
            absl::OkStatus());
  PushBoth(0);
  EXPECT_THAT(offers_[0], SizeIs(1));
}

TEST_F(ShardOffersTest, ANewEpochEndsIt) {
  ShardOptions options = Quiet();
  options.replicated = true;
  ShardRing ring(2, options, RingTensors());
  Listen(&ring);
  ring.Begin();
  for (int32_t rank = 0; rank < 2; ++rank) ring.Push(0, rank);
  EXPECT_THAT(offers_[0], SizeIs(1));
  ring.Attach();
  ring.Recover();
  EXPECT_TRUE(absl::IsFailedPrecondition(
      ring.RunOn(0, PhaseKind::kUpdate, 0).status()));
  // The row is there; named again, it makes the round complete again.
  EXPECT_EQ(ring.PushTo(0, 0, 1).status(), absl::OkStatus());
  EXPECT_THAT(offers_[0], SizeIs(2));
  ring.RunRound(0);
  EXPECT_EQ(*ring.Pull(1), Undisturbed(1));
}

TEST_F(ShardOffersTest, WhatIsLargeIsNotOffered) {
  Manifest manifest;
  manifest.tensors.push_back({"large", {1 << 19}, "", false});
  ShardRing ring(1, Quiet(), manifest);
  Listen(&ring);
  ring.Begin();
  for (int32_t rank = 0; rank < 2; ++rank) ring.Push(0, rank);
  EXPECT_THAT(offers_[0], IsEmpty());
}

TEST_F(ShardOffersTest, RowsAreReportedTogetherWhereNothingElseClosesARound) {
  ShardOptions options = Quiet();
  options.reports_together = true;
  ShardRing ring(1, options, RingTensors());
  ring.Begin();
  absl::StatusOr<FrameResult> result = ring.PushTo(0, 0, 0);
  EXPECT_TRUE(result->acknowledge);
  EXPECT_TRUE(result->more);
  result = ring.PushTo(0, 0, 1);
  EXPECT_TRUE(result->round_complete);
  EXPECT_FALSE(result->more);
  Begin();
  EXPECT_FALSE(ring_.PushTo(0, 0, 0)->more);  // not so there
}

// Phases that come a second time, or so late that the round has gone on (P7).

ShardOptions Replicated() {
  ShardOptions options = Adam();
  options.replicated = true;
  return options;
}

class LatePhasesTest : public RingTest {
 protected:
  LatePhasesTest() : copies_(2, Replicated(), RingTensors()) {}

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
  copies_.Begin();
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
  copies_.Begin();
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
    ring->Begin();
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
