#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/open_round.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

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
constexpr double kMaxProducts = 4e9;

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

}  // namespace
}  // namespace agg
