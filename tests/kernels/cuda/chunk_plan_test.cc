#include "kernels/cuda/chunk_plan.h"

#include <random>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

namespace agg::cuda {
namespace {

// Every element of every range is in exactly one chunk, in order, and slots
// and chunks fit together.
void ExpectCovers(const std::vector<ElementRange>& ranges,
                  const std::vector<Wave>& waves, int64_t max_chunks,
                  int64_t max_slots) {
  std::vector<int64_t> done(ranges.size(), 0);
  int64_t last_range = 0;
  for (const Wave& wave : waves) {
    const std::vector<Chunk> chunks = ChunksOf(wave);
    ASSERT_GE(chunks.size(), 1u);
    ASSERT_EQ(static_cast<int64_t>(chunks.size()), wave.num_chunks);
    ASSERT_LE(wave.num_chunks, max_chunks);
    ASSERT_LE(static_cast<int64_t>(wave.slot_ranges.size()), max_slots);
    ASSERT_EQ(wave.slots.size(), wave.slot_ranges.size());
    int32_t c = 0;
    for (size_t slot = 0; slot < wave.slots.size(); ++slot) {
      ASSERT_EQ(wave.slots[slot].first_chunk, c);
      const int64_t range = wave.slot_ranges[slot];
      ASSERT_GE(range, last_range);
      last_range = range;
      for (const int64_t end = c + NumChunks(wave.slots[slot].num_elements);
           c < end; ++c) {
        const Chunk& chunk = chunks[c];
        ASSERT_EQ(chunk.slot, static_cast<int32_t>(slot));
        ASSERT_EQ(chunk.begin, ranges[range].begin + done[range]);
        ASSERT_EQ(chunk.begin % kLayoutAlignment, 0);
        ASSERT_GE(chunk.num_elements, 1);
        ASSERT_LE(chunk.num_elements, kChunkElements);
        done[range] += chunk.num_elements;
        // As a kernel finds it.
        const Chunk found = ChunkOfSlots(
            wave.slots.data(), static_cast<int32_t>(wave.slots.size()), c);
        ASSERT_EQ(found.begin, chunk.begin);
        ASSERT_EQ(found.num_elements, chunk.num_elements);
        ASSERT_EQ(found.slot, chunk.slot);
      }
    }
    ASSERT_EQ(c, wave.num_chunks);
  }
  for (size_t r = 0; r < ranges.size(); ++r) {
    EXPECT_EQ(done[r], ranges[r].num_elements) << "range " << r;
  }
}

TEST(ChunkPlanTest, CoversRangesOfEverySizeWithinTheLimits) {
  const std::vector<ElementRange> ranges = {
      {0, 1},      {32, 0},        {32, 31},
      {64, 16384}, {16448, 16385}, {49216, 100000},
      {149216, 0}, {149216, 5},    {int64_t{1} << 40, 3 * 16384 + 7}};
  for (const int64_t max_chunks : {1, 2, 3, 7, 1000}) {
    for (const int64_t max_slots : {1, 2, 1000}) {
      ExpectCovers(ranges, PlanWaves(ranges, max_chunks, max_slots), max_chunks,
                   max_slots);
    }
  }
}

TEST(ChunkPlanTest, NothingYieldsNoWave) {
  EXPECT_TRUE(PlanWaves({}, 10, 10).empty());
  const std::vector<ElementRange> empty = {{0, 0}, {32, 0}};
  EXPECT_TRUE(PlanWaves(empty, 10, 10).empty());
}

TEST(ChunkPlanTest, ARangeLongerThanAWaveGoesOnWithASlotOfItsOwn) {
  const std::vector<ElementRange> ranges = {{0, 3 * kChunkElements},
                                            {3 * kChunkElements, 10}};
  const std::vector<Wave> waves = PlanWaves(ranges, 2, 10);
  ASSERT_EQ(waves.size(), 2u);
  EXPECT_EQ(waves[0].slot_ranges, std::vector<int64_t>({0}));
  EXPECT_EQ(waves[1].slot_ranges, std::vector<int64_t>({0, 1}));
  EXPECT_EQ(waves[1].slots[1].first_chunk, 1);
  EXPECT_EQ(waves[1].num_chunks, 2);
}

TEST(ChunkPlanTest, ARangeThatDoesNotFitStartsAWave) {
  const std::vector<ElementRange> ranges = {
      {0, kChunkElements}, {kChunkElements, 2 * kChunkElements}};
  const std::vector<Wave> waves = PlanWaves(ranges, 2, 10);
  ASSERT_EQ(waves.size(), 2u);
  EXPECT_EQ(waves[1].slot_ranges, std::vector<int64_t>({1}));
  EXPECT_EQ(waves[1].num_chunks, 2);
}

// (begin, elements) of the chunks of each slot of a range: what is added in
// which groups.
using Pieces = std::vector<std::vector<std::tuple<int64_t, int32_t>>>;

Pieces PiecesOf(int64_t range, const std::vector<Wave>& waves) {
  Pieces pieces;
  for (const Wave& wave : waves) {
    for (size_t slot = 0; slot < wave.slot_ranges.size(); ++slot) {
      if (wave.slot_ranges[slot] != range) continue;
      pieces.emplace_back();
      for (const Chunk& chunk : ChunksOf(wave)) {
        if (chunk.slot != static_cast<int32_t>(slot)) continue;
        pieces.back().emplace_back(chunk.begin, chunk.num_elements);
      }
    }
  }
  return pieces;
}

TEST(ChunkPlanTest, TheOtherRangesDoNotChangeARangesPieces) {
  std::mt19937 random(3);
  for (int repetition = 0; repetition < 300; ++repetition) {
    const auto max_chunks = static_cast<int64_t>(1 + random() % 6);
    const auto max_slots = static_cast<int64_t>(1 + random() % 6);
    std::vector<ElementRange> ranges;
    int64_t begin = 0;
    for (uint32_t r = 0; r < 1 + random() % 8; ++r) {
      ranges.push_back(
          {begin, static_cast<int64_t>(random() % (9 * kChunkElements))});
      begin += 9 * kChunkElements;
    }
    const std::vector<Wave> waves = PlanWaves(ranges, max_chunks, max_slots);
    ExpectCovers(ranges, waves, max_chunks, max_slots);
    for (size_t r = 0; r < ranges.size(); ++r) {
      ASSERT_EQ(PiecesOf(static_cast<int64_t>(r), waves),
                PiecesOf(0, PlanWaves({ranges[r]}, max_chunks, max_slots)));
    }
  }
}

TEST(CoveredSpansTest, JoinsOverPaddingButNotOverOtherSlices) {
  const std::vector<ElementRange> ranges = {
      {0, 40000}, {40000, 33}, {40096, 5}, {40160, 10}};
  // 40000 is a multiple of 32; 40033 is padded to 40064, which is a slice of
  // its own that no range names; 40101 to 40128, likewise.
  const std::vector<Wave> waves = PlanWaves(ranges, 100, 100);
  const std::vector<Span> spans = CoveredSpans(waves[0]);
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].begin, 0);
  EXPECT_EQ(spans[0].num_elements, 40033);
  EXPECT_EQ(spans[1].begin, 40096);
  EXPECT_EQ(spans[1].num_elements, 5);
  EXPECT_EQ(spans[2].begin, 40160);
  EXPECT_EQ(spans[2].num_elements, 10);
}

TEST(CoveredSpansTest, PaddingBetweenNeighboursIsCopiedAlong) {
  const std::vector<ElementRange> ranges = {{0, 33}, {64, 1}, {96, 4}};
  const std::vector<Span> spans = CoveredSpans(PlanWaves(ranges, 100, 100)[0]);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].num_elements, 100);
}

}  // namespace
}  // namespace agg::cuda
