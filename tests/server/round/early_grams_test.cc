#include "server/round/early_grams.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

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

class EarlyGramsTest : public testing::Test {
 protected:
  EarlyGramsTest() { early_.Expect(kRows, 4); }
  void LandAll(int32_t slice) {
    early_.SliceLanded(2, 20, slice);
    early_.SliceLanded(5, 50, slice);
  }

  EarlyGrams early_;
};

TEST_F(EarlyGramsTest, ASliceIsReadyOnceAllItsRowsHaveLanded) {
  early_.SliceLanded(5, 50, 3);
  early_.SliceLanded(5, 50, 1);
  EXPECT_FALSE(early_.any_ready());
  early_.SliceLanded(2, 20, 3);
  EXPECT_TRUE(early_.any_ready());
  early_.SliceLanded(2, 20, 1);
  const EarlyGrams::Batch batch = early_.Take();
  EXPECT_THAT(batch.slices, ElementsAre(1, 3));
  EXPECT_TRUE(SameRows(batch.rows, kRows));
  EXPECT_FALSE(early_.any_ready());
  early_.Finish(GramsOf(batch));
  EXPECT_THAT(Found(early_.TakeResults(kRows)), ElementsAre(1, 3));
  EXPECT_THAT(Found(early_.TakeResults(kRows)), IsEmpty());
}

TEST_F(EarlyGramsTest, WhatBecameReadyFirstIsTakenFirst) {
  constexpr int kSlices = static_cast<int>(EarlyGrams::kMaxBatch) + 2;
  early_.Expect(kRows, kSlices);
  for (int slice = kSlices - 1; slice >= 0; --slice) LandAll(slice);
  const EarlyGrams::Batch first = early_.Take();
  EXPECT_EQ(first.slices.size(), EarlyGrams::kMaxBatch);
  EXPECT_EQ(first.slices.front(), 2);
  EXPECT_EQ(first.slices.back(), kSlices - 1);
  early_.Finish(GramsOf(first));
  EXPECT_TRUE(early_.any_ready());
  EXPECT_THAT(early_.Take().slices, ElementsAre(0, 1));
  EXPECT_FALSE(early_.any_ready());
}

TEST_F(EarlyGramsTest, RowsThatAreNotExpectedDoNotCount) {
  early_.SliceLanded(2, 20, 0);
  early_.SliceLanded(5, 51, 0);  // another session
  early_.SliceLanded(3, 50, 0);  // another rank
  EXPECT_FALSE(early_.any_ready());
  early_.Expect({}, 4);
  LandAll(0);
  EXPECT_FALSE(early_.any_ready());
}

TEST_F(EarlyGramsTest, OtherRowsAtTheCloseMakeResultsUseless) {
  LandAll(0);
  early_.Finish(GramsOf(early_.Take()));
  const auto results = early_.TakeResults({{2, 20}});
  EXPECT_EQ(results.size(), 4u);
  EXPECT_THAT(Found(results), IsEmpty());
}

TEST_F(EarlyGramsTest, NothingIsReadyOnceTheRoundHasClosed) {
  early_.SliceLanded(2, 20, 0);
  LandAll(1);
  early_.TakeResults(kRows);
  EXPECT_FALSE(early_.any_ready());
  early_.SliceLanded(5, 50, 0);
  EXPECT_FALSE(early_.any_ready());
}

TEST_F(EarlyGramsTest, ResultsThatExpectOvertookAreDropped) {
  LandAll(0);
  const EarlyGrams::Batch batch = early_.Take();
  early_.Expect(kRows, 4);
  EXPECT_TRUE(early_.Reading(2, 0));  // still
  early_.Finish(GramsOf(batch));
  EXPECT_FALSE(early_.Reading(2, 0));
  EXPECT_THAT(Found(early_.TakeResults(kRows)), IsEmpty());
}

TEST_F(EarlyGramsTest, AnErrorLeavesTheSlicesToTheClose) {
  LandAll(0);
  early_.Take();
  early_.Finish({});
  LandAll(2);
  early_.Finish(GramsOf(early_.Take()));
  EXPECT_THAT(Found(early_.TakeResults(kRows)), ElementsAre(2));
}

TEST_F(EarlyGramsTest, OnlyTheBatchIsBeingRead) {
  EXPECT_FALSE(early_.Reading(2, 0));
  LandAll(0);
  EXPECT_FALSE(early_.Reading(2, 0));
  early_.Take();
  EXPECT_TRUE(early_.Reading(2, 0));
  EXPECT_TRUE(early_.Reading(5, 0));
  EXPECT_FALSE(early_.Reading(3, 0));
  EXPECT_FALSE(early_.Reading(2, 1));
}

}  // namespace
}  // namespace agg
