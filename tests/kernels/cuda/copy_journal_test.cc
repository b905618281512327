#include "kernels/cuda/copy_journal.h"

#include <algorithm>
#include <random>

#include "gtest/gtest.h"

namespace agg::cuda {
namespace {

constexpr int64_t kAlignment = 128;  // of float32 slices

TEST(CopyCoalescerTest, ALargeSliceGoesAtOnce) {
  CopyCoalescer coalescer;
  const auto ready = coalescer.Add({0, kEnoughBytes}, kAlignment);
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(ready[0].begin, 0);
  EXPECT_EQ(ready[0].end, kEnoughBytes);
  EXPECT_FALSE(coalescer.Take().has_value());
}

TEST(CopyCoalescerTest, NeighboursGrowTogetherAcrossPadding) {
  CopyCoalescer coalescer;
  EXPECT_TRUE(coalescer.Add({0, 100}, kAlignment).empty());
  EXPECT_TRUE(coalescer.Add({128, 130}, kAlignment).empty());
  EXPECT_TRUE(coalescer.Add({256, 512}, kAlignment).empty());
  const auto rest = coalescer.Take();
  ASSERT_TRUE(rest.has_value());
  EXPECT_EQ(rest->begin, 0);
  EXPECT_EQ(rest->end, 512);
  EXPECT_FALSE(coalescer.Take().has_value());
}

TEST(CopyCoalescerTest, AStrangerReleasesWhatWaited) {
  CopyCoalescer coalescer;
  coalescer.Add({0, 100}, kAlignment);
  const auto ready = coalescer.Add({1024, 1100}, kAlignment);
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(ready[0].end, 100);
  EXPECT_EQ(coalescer.Take()->begin, 1024);
}

// The same slice again (its worker came back) is copied again.
TEST(CopyCoalescerTest, ARepeatIsNotSwallowed) {
  CopyCoalescer coalescer;
  coalescer.Add({0, 100}, kAlignment);
  EXPECT_EQ(coalescer.Add({0, 100}, kAlignment).size(), 1u);
  EXPECT_TRUE(coalescer.Take().has_value());
}

TEST(CopyCoalescerTest, EmptyRangesAreNothing) {
  CopyCoalescer coalescer;
  EXPECT_TRUE(coalescer.Add({128, 128}, kAlignment).empty());
  EXPECT_FALSE(coalescer.Take().has_value());
}

// Slices in any order: every byte of every slice is copied, once.
TEST(CopyCoalescerTest, CopiesEveryByteOnceInAnyOrder) {
  std::mt19937 random(3);
  std::vector<ByteSpan> slices;
  int64_t begin = 0;
  std::uniform_int_distribution<int64_t> sizes(1, 300000);
  while (slices.size() < 200) {
    const int64_t size = sizes(random);
    slices.push_back({begin, begin + size});
    begin += (size + kAlignment - 1) / kAlignment * kAlignment;
  }
  for (int trial = 0; trial < 20; ++trial) {
    // From in order to shuffled.
    for (int swaps = 0; swaps < trial * 10; ++swaps) {
      std::swap(slices[random() % 200], slices[random() % 200]);
    }
    CopyCoalescer coalescer;
    std::vector<ByteSpan> copies;
    for (const ByteSpan& slice : slices) {
      for (const ByteSpan& ready : coalescer.Add(slice, kAlignment)) {
        copies.push_back(ready);
      }
    }
    if (const auto rest = coalescer.Take()) copies.push_back(*rest);
    for (const ByteSpan& slice : slices) {
      EXPECT_EQ(std::count_if(copies.begin(), copies.end(),
                              [&](const ByteSpan& copy) {
                                return copy.begin <= slice.begin &&
                                       slice.end <= copy.end;
                              }),
                1);
    }
    EXPECT_LE(copies.size(), slices.size());
    if (trial == 0) {
      EXPECT_LT(copies.size(), 40u) << "joined too few";
    }
  }
}

TEST(CopyJournalTest, KnowsTheLastCopyOfEachByte) {
  CopyJournal journal;
  EXPECT_EQ(journal.LastCopyOf({0, 1000}), 0);
  journal.Add({0, 100}, 1);
  journal.Add({100, 300}, 4);
  journal.Add({600, 700}, 5);
  EXPECT_EQ(journal.LastCopyOf({0, 100}), 1);
  EXPECT_EQ(journal.LastCopyOf({99, 101}), 4);
  EXPECT_EQ(journal.LastCopyOf({300, 600}), 0);
  EXPECT_EQ(journal.LastCopyOf({0, 1000}), 5);
  EXPECT_EQ(journal.LastCopyOf({699, 700}), 5);
  journal.Add({50, 150}, 9);  // again
  EXPECT_EQ(journal.LastCopyOf({0, 100}), 9);
  EXPECT_EQ(journal.LastCopyOf({0, 50}), 1);
  EXPECT_EQ(journal.LastCopyOf({150, 300}), 4);
}

TEST(CopyJournalTest, ForgetsWhatHasBeenWaitedFor) {
  CopyJournal journal;
  journal.Add({0, 100}, 1);
  journal.Add({100, 200}, 2);
  journal.Add({200, 300}, 3);
  journal.ForgetUpTo(2);
  EXPECT_EQ(journal.LastCopyOf({0, 200}), 0);
  EXPECT_EQ(journal.LastCopyOf({0, 300}), 3);
  journal.ForgetUpTo(7);
  EXPECT_EQ(journal.LastCopyOf({0, 300}), 0);
}

}  // namespace
}  // namespace agg::cuda
