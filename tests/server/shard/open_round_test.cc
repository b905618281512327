// The bookkeeping of a shard's open round, without memory and threads.
#include "server/shard/open_round.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Slices 0 and 1 of tensors "a" (4 elements) and "b" (2, optional).
std::shared_ptr<const ShardLayout> Layout() {
  Manifest manifest;
  manifest.tensors = {{"a", {4}, "", false}, {"b", {2}, "", true}};
  return std::make_shared<ShardLayout>(*MakeShardLayout(manifest, 1, 0));
}

ShardOptions Options() {
  ShardOptions options;
  options.workers = 2;
  options.max_workers = 3;
  return options;
}

class OpenRoundTest : public testing::Test {
 protected:
  OpenRoundTest() : round_(Options(), Layout(), &sessions_) {}

  void Begin(uint64_t session, int32_t rank, bool seed_role = false) {
    SessionChange change;
    change.session = session;
    change.rank = rank;
    change.seed_role = seed_role;
    sessions_.Begin(session, rank);
    round_.ChangeSession(change);
  }
  void End(uint64_t session, int32_t rank) {
    SessionChange change;
    change.session = session;
    change.rank = rank;
    change.remove = true;
    sessions_.End(session, absl::AbortedError("over"));
    round_.ChangeSession(change);
  }
  FrameLanding Landing(uint64_t session, int32_t rank,
                       std::vector<uint32_t> slices = {0, 1},
                       PushKind kind = PushKind::kGradient) {
    FrameLanding landing;
    landing.rank = rank;
    landing.header.session = session;
    landing.header.round = kind == PushKind::kSeed ? 0 : round_.version();
    landing.header.kind = kind;
    landing.header.slices = std::move(slices);
    for (const uint32_t slice : landing.header.slices) {
      landing.header.crc32c.push_back(0);
      landing.header.payload_bytes += slice == 0 ? 16 : 8;
    }
    return landing;
  }
  bool TryClaim(FrameLanding* landing) {
    const absl::Status status = round_.Admit(landing);
    EXPECT_EQ(status, absl::OkStatus());
    return round_.TryClaim([this](int32_t) { return &memory_; }, landing);
  }
  // Lands a frame from its begin to its end.
  void Land(FrameLanding landing) {
    ASSERT_TRUE(TryClaim(&landing));
    for (SliceLanding& slice : landing.slices) slice.landed = true;
    round_.EndClaims(landing);
  }
  void Publish(uint64_t version) { round_.Publish(version); }

  char memory_ = 0;
  SessionTable sessions_;
  OpenRound round_;
};

TEST_F(OpenRoundTest, IsUnusedUntilSomebodyJoins) {
  EXPECT_TRUE(round_.unused());
  Begin(10, 0);
  EXPECT_FALSE(round_.unused());
  End(10, 0);
  EXPECT_TRUE(round_.unused());
  Publish(0);
  EXPECT_FALSE(round_.unused());
}

TEST_F(OpenRoundTest, TheSeedIsOfTheSessionWithTheRole) {
  Begin(10, 0, /*seed_role=*/true);
  Begin(20, 1);
  FrameLanding other = Landing(20, 1, {0}, PushKind::kSeed);
  EXPECT_TRUE(absl::IsAlreadyExists(round_.Admit(&other)));
  FrameLanding early = Landing(20, 1);
  EXPECT_THAT(round_.Admit(&early).message(),
              HasSubstr("no version is published yet"));
  Land(Landing(10, 0, {0}, PushKind::kSeed));
  EXPECT_FALSE(round_.SeedComplete(10));
  EXPECT_TRUE(round_.LacksSlices({0, 10, 0, PushKind::kSeed}, 0));
  Land(Landing(10, 0, {1}, PushKind::kSeed));
  EXPECT_TRUE(round_.SeedComplete(10));
  EXPECT_FALSE(round_.LacksSlices({0, 10, 0, PushKind::kSeed}, 0));
  EXPECT_FALSE(round_.SeedComplete(20));
  Publish(0);
  FrameLanding late = Landing(10, 0, {0}, PushKind::kSeed);
  EXPECT_THAT(round_.Admit(&late).message(), HasSubstr("the job is seeded"));
}

TEST_F(OpenRoundTest, ASliceIsClaimedOnce) {
  Begin(10, 0);
  Publish(0);
  FrameLanding first = Landing(10, 0, {0});
  ASSERT_TRUE(TryClaim(&first));
  EXPECT_EQ(first.slices[0].destination, &memory_);
  EXPECT_EQ(first.slices[0].num_bytes, 16);
  FrameLanding second = Landing(10, 0, {0});
  EXPECT_FALSE(TryClaim(&second));  // it waits
  first.slices[0].landed = true;
  round_.EndClaims(first);
  ASSERT_TRUE(TryClaim(&second));
  EXPECT_EQ(second.slices[0].destination, nullptr);  // to be skipped
  round_.EndClaims(second);
  EXPECT_FALSE(round_.Complete(second));
  EXPECT_TRUE(round_.LacksSlices({0, 10, 0, PushKind::kGradient}, 0));
  Land(Landing(10, 0, {1}));
  EXPECT_TRUE(round_.Complete(second));
  EXPECT_TRUE(round_.RowComplete({0, 10}));
  EXPECT_FALSE(round_.RowComplete({0, 11}));
  EXPECT_FALSE(round_.RowComplete({3, 10}));  // not a rank
}

TEST_F(OpenRoundTest, AbsentSlicesAreClaimedToo) {
  Begin(10, 0);
  Publish(0);
  FrameLanding landing = Landing(10, 0, {0});
  landing.header.absent_slices = {1};
  ASSERT_TRUE(TryClaim(&landing));
  EXPECT_THAT(landing.absent, ElementsAre(1));
  landing.slices[0].landed = true;
  round_.EndClaims(landing);
  EXPECT_TRUE(round_.Complete(landing));
}

TEST_F(OpenRoundTest, NothingLandsInAClosedRound) {
  Begin(10, 0);
  Publish(0);
  round_.Close();
  FrameLanding landing = Landing(10, 0);
  ASSERT_TRUE(TryClaim(&landing));
  EXPECT_TRUE(landing.closed);
  EXPECT_EQ(landing.slices[0].destination, nullptr);
  round_.Reopen();
  FrameLanding again = Landing(10, 0);
  ASSERT_TRUE(TryClaim(&again));
  EXPECT_FALSE(again.closed);
}

TEST_F(OpenRoundTest, ARowThatIsKeptKeepsItsNextSessionOut) {
  Begin(10, 0);
  Publish(0);
  Land(Landing(10, 0));
  SessionChange change;
  change.session = 11;
  change.rank = 0;
  change.replaces = 10;
  change.keep_row = true;
  sessions_.End(10, absl::AbortedError("superseded"));
  sessions_.Begin(11, 0);
  round_.ChangeSession(change);
  FrameLanding early = Landing(11, 0);
  EXPECT_THAT(round_.Admit(&early).message(),
              HasSubstr("takes part from round 1"));
  EXPECT_TRUE(round_.RowComplete({0, 10}));
  Publish(1);
  FrameLanding next = Landing(11, 0);
  EXPECT_TRUE(TryClaim(&next));
}

// --- Early Grams -------------------------------------------------------------

TEST_F(OpenRoundTest, ExpectsNobodyBeforeAllWorkersAreThere) {
  Publish(0);
  Begin(10, 0);
  EXPECT_TRUE(round_.early()->rows().empty());
  Land(Landing(10, 0, {1}));
  Begin(20, 1);
  const std::vector<RoundRow> both = {{0, 10}, {1, 20}};
  EXPECT_TRUE(round_.early()->rows() == both);
  EXPECT_FALSE(round_.early()->any_ready());
  Land(Landing(20, 1, {1}));
  EXPECT_TRUE(round_.early()->any_ready());
  const EarlyGrams::Batch batch = round_.early()->Take(Layout()->ranges);
  EXPECT_THAT(batch.slices, ElementsAre(1));
}

TEST_F(OpenRoundTest, WhoJoinsLaterIsExpectedInTheNextRound) {
  Begin(10, 0);
  Begin(20, 1);
  Publish(1);
  Begin(30, 2);
  EXPECT_EQ(round_.early()->rows().size(), 2u);
  End(20, 1);  // what the other has landed is complete now
  EXPECT_EQ(round_.early()->rows().size(), 1u);
  Publish(2);
  const std::vector<RoundRow> next = {{0, 10}, {2, 30}};
  EXPECT_TRUE(round_.early()->rows() == next);
}

TEST_F(OpenRoundTest, AFrameWaitsForTheGramThatReadsAFormerSessionsBytes) {
  Begin(10, 0);
  Begin(20, 1);
  Publish(1);
  for (const uint64_t session : {10, 20}) {
    Land(Landing(session, session == 10 ? 0 : 1, {0}));
  }
  round_.early()->Take(Layout()->ranges);
  SessionChange change;
  change.session = 11;
  change.rank = 0;
  change.replaces = 10;
  sessions_.End(10, absl::AbortedError("superseded"));
  sessions_.Begin(11, 0);
  round_.ChangeSession(change);
  FrameLanding waits = Landing(11, 0, {0});
  EXPECT_FALSE(TryClaim(&waits));
  FrameLanding other_slice = Landing(11, 0, {1});
  EXPECT_TRUE(TryClaim(&other_slice));
  round_.early()->GiveUp();
  EXPECT_TRUE(TryClaim(&waits));
}

}  // namespace
}  // namespace agg
