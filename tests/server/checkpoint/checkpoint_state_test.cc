#include "server/checkpoint/checkpoint_state.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/checkpoint/checkpoint_manifest.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr CheckpointId kA{1, 50};
constexpr CheckpointId kB{2, 10};

// Of one shard, whose folder is "/c".
CheckpointListing Sees(std::vector<CheckpointState> states) {
  return {"/c", "", std::move(states)};
}
CheckpointListing Fails(const std::string& error) { return {"/c", error, {}}; }

CheckpointChoice Choose(const std::vector<CheckpointListing>& listings) {
  return ChooseCheckpoint(listings, absl::nullopt);
}
std::string Missing(const std::vector<CheckpointListing>& listings) {
  return MissingText(Choose(listings), {});
}

TEST(ChooseCheckpointTest, TheEpochGoesBeforeTheVersion) {
  const std::vector<CheckpointListing> one = {
      Sees({{kA, 1, {0}, true}, {kB, 1, {0}, true}})};
  EXPECT_EQ(Choose(one).id, kB);
  EXPECT_EQ(Missing(one), "");
  EXPECT_THAT(SealedCheckpoints(one), ElementsAre(kB, kA));
  EXPECT_THAT(CompleteCheckpoints(one), ElementsAre(kB, kA));
}

TEST(ChooseCheckpointTest, OneManifestAndEachItsOwnPart) {
  EXPECT_EQ(Missing({Sees({{kB, 2, {0}, true}}), Sees({{kB, 2, {1}, false}})}),
            "");
  // All share one folder.
  EXPECT_EQ(
      Missing({Sees({{kB, 2, {0, 1}, true}}), Sees({{kB, 2, {0, 1}, true}})}),
      "");
}

TEST(ChooseCheckpointTest, WhatWasNeverSealedIsNone) {
  EXPECT_FALSE(Choose({Sees({})}).id.has_value());
  EXPECT_FALSE(Choose({Sees({{kB, 2, {0, 1}, false}})}).id.has_value());
}

TEST(ChooseCheckpointTest, AnIncompleteNewestIsChosenAndNoOlderOne) {
  const std::vector<CheckpointListing> listings = {
      Sees({{kA, 2, {0}, true}, {kB, 2, {0}, true}}),
      Sees({{kA, 2, {1}, true}})};
  EXPECT_EQ(Choose(listings).id, kB);
  EXPECT_EQ(Missing(listings), "shard 1 (/c) lacks part 1 of 2");
  EXPECT_EQ(MissingText(Choose(listings), {0}), "");
  EXPECT_THAT(CompleteCheckpoints(listings), ElementsAre(kA));
}

TEST(ChooseCheckpointTest, AnEmptyFolderIsSaidToBeEmpty) {
  EXPECT_EQ(Missing({Sees({{kB, 2, {0}, true}}), Sees({})}),
            "shard 1 (/c) has no checkpoint at all, and lacks part 1 of 2");
}

TEST(ChooseCheckpointTest, FoldersThatWereExchangedAreNotComplete) {
  EXPECT_EQ(Missing({Sees({{kB, 2, {1}, true}}), Sees({{kB, 2, {0}, true}})}),
            "shard 0 (/c) lacks part 0 of 2; shard 1 (/c) lacks part 1 of 2");
}

TEST(ChooseCheckpointTest, AnotherNumberOfShardsNeedsAllPartsEverywhere) {
  const std::vector<CheckpointListing> torn = {Sees({{kB, 2, {0, 1}, true}}),
                                               Sees({{kB, 2, {0, 1}, true}}),
                                               Sees({{kB, 2, {1}, true}})};
  EXPECT_THAT(Missing(torn), HasSubstr("shard 2 (/c) lacks part 0 of 2, all"));
  std::vector<CheckpointListing> whole = torn;
  whole[2].states[0].parts = {0, 1};
  EXPECT_EQ(Missing(whole), "");
  EXPECT_THAT(Missing({Sees({{kB, 3, {0, 1}, true}})}),
              HasSubstr("lacks part 2 of 3"));
}

TEST(ChooseCheckpointTest, PartsOfTwoNumbersOfShardsUnderOneName) {
  EXPECT_THAT(Missing({Sees({{kB, 1, {0}, true}}), Sees({{kB, 2, {1}, true}})}),
              HasSubstr("have parts of 1 and of 2 shards under one name"));
}

TEST(ChooseCheckpointTest, AManifestWithoutParts) {
  EXPECT_EQ(Missing({Sees({{kB, 0, {}, true}})}),
            "shard 0 (/c) lacks part 0 of 1");
}

TEST(ChooseCheckpointTest, WhatThisProcessKnowsCountsThoughNobodySeesIt) {
  const CheckpointChoice choice =
      ChooseCheckpoint({Sees({{kA, 1, {0}, true}})}, kB);
  EXPECT_EQ(choice.id, kB);
  EXPECT_EQ(MissingText(choice, {}), "shard 0 (/c) lacks part 0 of 1");
  EXPECT_EQ(ChooseCheckpoint({Sees({{kB, 1, {0}, true}})}, kA).id, kB);
}

TEST(ChooseCheckpointTest, AFolderThatCannotBeListedMayHoldANewerOne) {
  const std::vector<CheckpointListing> listings = {
      Sees({{kB, 2, {0, 1}, true}}), Fails("cannot list /c: EIO")};
  EXPECT_EQ(Choose(listings).unreadable,
            "shard 1 (/c) cannot be read: cannot list /c: EIO");
  EXPECT_EQ(Missing(listings),
            "shard 1 (/c) cannot be read: cannot list /c: EIO");
  EXPECT_FALSE(Choose({Fails("EIO")}).id.has_value());
  EXPECT_THAT(Choose({Fails("EIO")}).unreadable, HasSubstr("EIO"));
  EXPECT_THAT(CompleteCheckpoints(listings), IsEmpty());
}

TEST(BegunAnewTest, TheNewestOfAllFoldersWithProofThatNothingCameSince) {
  std::vector<CheckpointListing> listings = {Sees({{kA, 2, {0}, true}}),
                                             Fails("EIO")};
  EXPECT_EQ(BegunAnew(listings), 0u);
  EXPECT_FALSE(NothingSinceBegunAnew(listings));
  listings[0].begun_anew = 2;
  EXPECT_EQ(BegunAnew(listings), 2u);
  EXPECT_TRUE(NothingSinceBegunAnew(listings));
  // A part comes before any manifest; newest first, as over the network.
  listings[0].states = {{kB, 2, {0}, false}, {kA, 2, {0}, true}};
  EXPECT_FALSE(NothingSinceBegunAnew(listings));
  // Of an older word nothing follows.
  listings.push_back(Fails("EIO"));
  listings[0].states = {{kA, 2, {0}, true}};
  listings[2].begun_anew = 3;
  EXPECT_EQ(BegunAnew(listings), 3u);
  EXPECT_FALSE(NothingSinceBegunAnew(listings));
}

}  // namespace
}  // namespace agg
