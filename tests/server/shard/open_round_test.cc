// The bookkeeping of a shard's open round, without memory and threads.
#include "server/shard/open_round.h"

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/crc32c.h"

namespace agg {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kMaxProducts = 4e9;

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
    return round_.TryClaim([this](int32_t) { return SlicePlace{&memory_}; },
                           landing);
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
  EXPECT_FALSE(round_.SeedComplete(10, 0));
  EXPECT_TRUE(round_.LacksSlices({0, 10, 0, PushKind::kSeed, 0}, 0));
  Land(Landing(10, 0, {1}, PushKind::kSeed));
  EXPECT_TRUE(round_.SeedComplete(10, 0));
  EXPECT_FALSE(round_.LacksSlices({0, 10, 0, PushKind::kSeed, 0}, 0));
  EXPECT_FALSE(round_.SeedComplete(20, 0));
  Publish(0);
  FrameLanding late = Landing(10, 0, {0}, PushKind::kSeed);
  EXPECT_THAT(round_.Admit(&late).message(), HasSubstr("the job is seeded"));
}

TEST_F(OpenRoundTest, ASeedThatIsBeingPublishedTakesNoOtherAttempt) {
  Begin(10, 0, /*seed_role=*/true);
  Land(Landing(10, 0, {0, 1}, PushKind::kSeed));
  round_.Close();
  FrameLanding repeat = Landing(10, 0, {0, 1}, PushKind::kSeed);
  EXPECT_EQ(round_.Admit(&repeat), absl::OkStatus());
  FrameLanding other = Landing(10, 0, {0}, PushKind::kSeed);
  other.header.attempt = 1;
  EXPECT_THAT(round_.Admit(&other).message(),
              HasSubstr("attempt 1 of a seed, of which another attempt is"));
  EXPECT_TRUE(round_.SeedComplete(10, 0));
  round_.Reopen();  // the publish failed
  EXPECT_EQ(round_.Admit(&other), absl::OkStatus());
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
  EXPECT_FALSE(*round_.Complete(second));
  EXPECT_TRUE(round_.LacksSlices({0, 10, 0, PushKind::kGradient, 0}, 0));
  Land(Landing(10, 0, {1}));
  EXPECT_TRUE(*round_.Complete(second));
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
  EXPECT_TRUE(*round_.Complete(landing));
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

TEST_F(OpenRoundTest, ARowIsNotKeptOverTheEndOfItsEpoch) {
  Begin(10, 0);
  Begin(20, 1);
  Publish(0);
  Land(Landing(10, 0));
  Land(Landing(20, 1));
  SessionChange leaves;
  leaves.session = 10;
  leaves.rank = 0;
  leaves.remove = true;
  leaves.keep_row = true;
  sessions_.End(10, absl::AbortedError("left"));
  round_.ChangeSession(leaves);
  EXPECT_EQ(round_.HeldSession(0), 10u);
  round_.BeginEpoch();
  EXPECT_EQ(round_.HeldSession(0), 0u);
  EXPECT_FALSE(round_.RowComplete({0, 10}));
  // Who is in commits its row again, without another push (P27).
  EXPECT_TRUE(round_.RowComplete({1, 20}));
  EXPECT_EQ(round_.CompleteRound().size(), 1u);
  Begin(11, 0);
  FrameLanding next = Landing(11, 0);
  EXPECT_TRUE(TryClaim(&next));
}

// --- Attempts ----------------------------------------------------------------

TEST_F(OpenRoundTest, OtherBytesOfALandedSliceAreRefused) {
  Begin(10, 0);
  Publish(0);
  FrameLanding first = Landing(10, 0, {0});
  first.header.crc32c = {7};
  first.header.absent_slices = {1};
  Land(first);
  FrameLanding again = first;
  EXPECT_EQ(round_.Admit(&again), absl::OkStatus());
  FrameLanding other = Landing(10, 0, {0});
  other.header.crc32c = {0xab};
  const absl::Status refused = round_.Admit(&other);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      refused.message(),
      AllOf(HasSubstr("slice 0 of round 0, attempt 0"), HasSubstr("0x00000007"),
            HasSubstr("0x000000ab"), HasSubstr("higher `attempt`")));
  FrameLanding not_absent = Landing(10, 0, {1});
  not_absent.header.crc32c = {8};
  EXPECT_THAT(round_.Admit(&not_absent).message(), HasSubstr("slice 1"));
  FrameLanding absent = Landing(10, 0, {});
  absent.header.absent_slices = {1};
  EXPECT_EQ(round_.Admit(&absent), absl::OkStatus());
  // What comes too late is dropped, whatever it is (P12).
  round_.Close();
  EXPECT_EQ(round_.Admit(&other), absl::OkStatus());
  EXPECT_TRUE(other.closed);
}

TEST_F(OpenRoundTest, AHigherAttemptTakesTheRow) {
  Begin(10, 0);
  Publish(0);
  Land(Landing(10, 0));
  FrameLanding second = Landing(10, 0, {0});
  second.header.attempt = 1;
  second.header.crc32c = {9};
  Land(second);
  EXPECT_FALSE(round_.RowComplete({0, 10}));
  EXPECT_FALSE(round_.RowComplete({0, 10, 1}));
  EXPECT_TRUE(round_.LacksSlices({0, 10, 0, PushKind::kGradient, 1}, 0));
  FrameLanding late = Landing(10, 0);
  const absl::Status replaced = round_.Admit(&late);
  EXPECT_EQ(replaced.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(replaced.message(), HasSubstr("replaced by attempt 1"));
  // Its frame may have waited, or brought nothing new, when the row went.
  EXPECT_EQ(round_.Complete(late).status().code(), absl::StatusCode::kAborted);
  FrameLanding rest = Landing(10, 0, {1});
  rest.header.attempt = 1;
  Land(rest);
  EXPECT_TRUE(*round_.Complete(rest));
  EXPECT_TRUE(round_.RowComplete({0, 10, 1}));
  EXPECT_EQ(round_.RowCrc32c({0, 10, 1}), Crc32cOfWords({9, 0}));
  round_.Close();
  FrameLanding third = Landing(10, 0);
  third.header.attempt = 2;
  ASSERT_TRUE(TryClaim(&third));
  EXPECT_TRUE(third.closed);
  EXPECT_TRUE(round_.RowComplete({0, 10, 1}));
}

TEST_F(OpenRoundTest, AHigherAttemptWaitsForCopiesUnderWay) {
  Begin(10, 0);
  Publish(0);
  FrameLanding first = Landing(10, 0, {0});
  ASSERT_TRUE(TryClaim(&first));
  FrameLanding second = Landing(10, 0, {1});
  second.header.attempt = 1;
  EXPECT_FALSE(TryClaim(&second));
  FrameLanding more = Landing(10, 0, {1});
  EXPECT_EQ(round_.Admit(&more).code(), absl::StatusCode::kAborted);
  first.slices[0].landed = true;
  round_.EndClaims(first);
  EXPECT_TRUE(TryClaim(&second));
  EXPECT_TRUE(round_.LacksSlices({0, 10, 0, PushKind::kGradient, 1}, 0));
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
  const EarlyGrams::Batch batch =
      round_.early()->Take(Layout()->ranges, kMaxProducts);
  EXPECT_THAT(batch.slices, ElementsAre(1));
}

TEST_F(OpenRoundTest, ASmallShardComputesNoGramEarly) {
  const int64_t num_elements = Layout()->num_elements;
  for (const int64_t min_elements : {num_elements, num_elements + 1}) {
    ShardOptions options = Options();
    options.workers = 1;
    options.min_early_elements = min_elements;
    SessionTable sessions;
    OpenRound round(options, Layout(), &sessions);
    sessions.Begin(10, 0);
    SessionChange change;
    change.session = 10;
    round.ChangeSession(change);
    round.Publish(0);
    EXPECT_EQ(round.early()->rows().empty(), min_elements > num_elements);
  }
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
  round_.early()->Take(Layout()->ranges, kMaxProducts);
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

TEST_F(OpenRoundTest, AHigherAttemptWaitsForTheGramThatReadsTheLowerOne) {
  Begin(10, 0);
  Begin(20, 1);
  Publish(1);
  for (const uint64_t session : {10, 20}) {
    Land(Landing(session, session == 10 ? 0 : 1, {0}));
  }
  round_.early()->Take(Layout()->ranges, kMaxProducts);
  FrameLanding waits = Landing(10, 0, {0});
  waits.header.attempt = 1;
  EXPECT_FALSE(TryClaim(&waits));
  const std::vector<RoundRow> rows = {{0, 10, 1}, {1, 20}};
  EXPECT_TRUE(round_.early()->rows() == rows);
  round_.early()->Finish({SliceGram{0, {1, 2, 3}, {}}});  // of the lower one
  ASSERT_TRUE(TryClaim(&waits));
  EXPECT_FALSE(round_.early()->any_ready());
  waits.slices[0].landed = true;
  round_.EndClaims(waits);
  EXPECT_TRUE(round_.early()->any_ready());
  EXPECT_FALSE(round_.early()->TakeResults(rows, 2)[0].has_value());
}

const std::vector<RoundRow> kRows = {{2, 20}, {5, 50}};

std::vector<SliceGram> GramsOf(const EarlyGrams::Batch& batch) {
  std::vector<SliceGram> grams;
  for (const int32_t slice : batch.slices) {
    grams.push_back({100 + slice, {static_cast<double>(slice)}, {}});
  }
  return grams;
}

// Which slices of TakeResults are there.
std::vector<int> Found(const std::vector<std::optional<SliceGram>>& results) {
  std::vector<int> found;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].has_value()) continue;
    EXPECT_EQ(results[i]->slice, 100 + static_cast<int>(i));
    found.push_back(static_cast<int>(i));
  }
  return found;
}

const std::vector<ElementRange> kRanges(4, ElementRange{0, 1000});

class EarlyGramsTest : public testing::Test {
 protected:
  EarlyGramsTest() { early_.Expect(kRows, 4); }
  EarlyGrams::Batch Take() { return early_.Take(kRanges, kMaxProducts); }
  void Compute() { early_.Finish(GramsOf(Take())); }

  EarlyGrams early_;
};

TEST(EarlyGramsBytesTest, PlanIsEnoughForWhatIsTaken) {
  for (const int num_slices : {0, 1, 63, 64, 65, 1025}) {
    EarlyGrams early;
    early.Expect(kRows, num_slices);
    EXPECT_GE(early.bytes(), num_slices * int64_t{sizeof(SliceGram)});
    for (int slice = 0; slice < num_slices; ++slice) early.SliceComplete(slice);
    EXPECT_LE(early.bytes(), EarlyGrams::Bytes(num_slices)) << num_slices;
  }
}

TEST_F(EarlyGramsTest, CompleteSlicesAreTakenOnce) {
  EXPECT_FALSE(early_.any_ready());
  early_.SliceComplete(3);
  early_.SliceComplete(1);
  early_.SliceComplete(3);
  const EarlyGrams::Batch batch = Take();
  EXPECT_THAT(batch.slices, ElementsAre(1, 3));
  EXPECT_TRUE(batch.rows == kRows);
  early_.SliceComplete(1);
  EXPECT_FALSE(early_.any_ready());
  early_.Finish(GramsOf(batch));
  EXPECT_THAT(Found(early_.TakeResults(kRows, 4)), ElementsAre(1, 3));
  EXPECT_THAT(Found(early_.TakeResults(kRows, 4)), IsEmpty());
}

TEST_F(EarlyGramsTest, WhatWasCompleteFirstIsTakenFirst) {
  constexpr int kMost = 64;
  constexpr int kSlices = kMost + 2;
  const std::vector<ElementRange> ranges(
      kSlices, ElementRange{0, EarlyGrams::kMaxElements / kMost});
  early_.Expect(kRows, kSlices);
  for (int slice = kSlices - 1; slice >= 0; --slice) {
    early_.SliceComplete(slice);
  }
  const EarlyGrams::Batch first = early_.Take(ranges, kMaxProducts);
  EXPECT_EQ(first.slices.size(), kMost);
  EXPECT_EQ(first.slices.front(), 2);
  EXPECT_EQ(first.slices.back(), kSlices - 1);
  early_.Finish(GramsOf(first));
  EXPECT_TRUE(early_.any_ready());
  EXPECT_THAT(early_.Take(ranges, kMaxProducts).slices, ElementsAre(0, 1));
  EXPECT_FALSE(early_.any_ready());
}

TEST_F(EarlyGramsTest, ABatchIsBoundedByItsWorkButHasASlice) {
  // Two rows have three pairs.
  constexpr int64_t kMost = 1000;
  const std::vector<ElementRange> ranges = {
      {0, kMost / 2}, {0, kMost / 2}, {0, kMost / 2}, {0, 10 * kMost}};
  for (int slice = 0; slice < 4; ++slice) early_.SliceComplete(slice);
  for (const std::vector<int32_t>& expected :
       std::vector<std::vector<int32_t>>{{0, 1}, {2}, {3}}) {
    const EarlyGrams::Batch batch = early_.Take(ranges, 3.0 * kMost);
    EXPECT_EQ(batch.slices, expected);
    early_.Finish(GramsOf(batch));
  }
  EXPECT_FALSE(early_.any_ready());
}

TEST_F(EarlyGramsTest, OtherRowsAtTheCloseMakeResultsUseless) {
  early_.SliceComplete(0);
  Compute();
  const auto results = early_.TakeResults({{2, 20}}, 4);
  EXPECT_EQ(results.size(), 4u);
  EXPECT_THAT(Found(results), IsEmpty());
}

TEST_F(EarlyGramsTest, NothingIsReadyOnceTheRoundHasClosed) {
  early_.SliceComplete(1);
  early_.TakeResults(kRows, 4);
  EXPECT_FALSE(early_.any_ready());
  EXPECT_TRUE(early_.rows().empty());
}

TEST_F(EarlyGramsTest, WithoutExpectedRowsThereAreNoResults) {
  EarlyGrams never;
  EXPECT_EQ(never.TakeResults(kRows, 4).size(), 4u);
}

TEST_F(EarlyGramsTest, ResultsThatExpectOvertookAreDropped) {
  early_.SliceComplete(0);
  const EarlyGrams::Batch batch = Take();
  early_.Expect(kRows, 4);
  EXPECT_TRUE(early_.Reading(2, 0));  // still
  early_.Finish(GramsOf(batch));
  EXPECT_FALSE(early_.Reading(2, 0));
  EXPECT_THAT(Found(early_.TakeResults(kRows, 4)), IsEmpty());
}

TEST_F(EarlyGramsTest, AnErrorLeavesTheRestToTheClose) {
  early_.SliceComplete(0);
  Compute();
  early_.SliceComplete(1);
  Take();
  early_.SliceComplete(2);
  early_.GiveUp();
  early_.SliceComplete(3);
  EXPECT_FALSE(early_.any_ready());
  EXPECT_FALSE(early_.Reading(2, 1));
  EXPECT_THAT(Found(early_.TakeResults(kRows, 4)), ElementsAre(0));
  early_.Expect(kRows, 4);  // the next round tries again
  early_.SliceComplete(3);
  EXPECT_TRUE(early_.any_ready());
}

TEST_F(EarlyGramsTest, OnlyTheBatchIsBeingRead) {
  early_.SliceComplete(0);
  EXPECT_FALSE(early_.Reading(2, 0));
  Take();
  EXPECT_TRUE(early_.Reading(2, 0));
  EXPECT_TRUE(early_.Reading(5, 0));
  EXPECT_FALSE(early_.Reading(3, 0));
  EXPECT_FALSE(early_.Reading(2, 1));
}

// How far rows are, wave by wave, and which attempts are pinned.

class RowWavesTest : public testing::Test {
 protected:
  // The shard has slices 0 and 1 of the first wave, none of the second one.
  RowWaves waves_{{{0, 2}, {2, 2}, {2, 3}}};
  std::set<int32_t> landed_;

  int News(bool again = false, uint32_t attempt = 0) {
    return waves_.News(4, {7, 3, attempt}, again, [this](int32_t slice) {
      return landed_.count(slice) != 0;
    });
  }
};

TEST_F(RowWavesTest, SaysWhatIsNew) {
  landed_ = {0};
  EXPECT_EQ(News(), 0);
  landed_ = {0, 1};
  EXPECT_EQ(News(), 2);  // of the second one nothing is missing here
  EXPECT_EQ(News(), 0);
  EXPECT_EQ(News(/*again=*/true), 2);
  landed_ = {0, 1, 2};
  EXPECT_EQ(News(), 3);
}

TEST_F(RowWavesTest, ALaterWaveWaitsForTheFirst) {
  landed_ = {1, 2};
  EXPECT_EQ(News(), 0);
  landed_ = {0, 1, 2};
  EXPECT_EQ(News(), 3);
}

TEST_F(RowWavesTest, AnotherAttemptBeginsAnew) {
  landed_ = {0, 1};
  EXPECT_EQ(News(), 2);
  landed_ = {0};
  EXPECT_EQ(News(false, 1), 0);
  landed_ = {0, 1};
  EXPECT_EQ(News(false, 1), 2);
}

TEST_F(RowWavesTest, PinnedRowsTakeNoOtherAttempt) {
  waves_.Pin({{4, 7, 1}});
  EXPECT_TRUE(waves_.CheckAttempt(4, {7, 3, 1}).ok());
  const absl::Status status = waves_.CheckAttempt(4, {7, 3, 2});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("attempt 2 of round 3"));
  // Other ranks, and a later session of this one, are no concern of it.
  EXPECT_TRUE(waves_.CheckAttempt(5, {7, 3, 2}).ok());
  EXPECT_TRUE(waves_.CheckAttempt(4, {8, 3, 2}).ok());
  waves_.Unpin();
  EXPECT_TRUE(waves_.CheckAttempt(4, {7, 3, 2}).ok());
}

}  // namespace
}  // namespace agg
