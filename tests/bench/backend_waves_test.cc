#include "tests/bench/backend_waves.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/kernel_args.h"

namespace agg {
namespace {

constexpr int64_t kMi = int64_t{1} << 20;
constexpr int64_t kSliceChunks = kMi / cuda::kChunkElements;

std::vector<int64_t> ChunksOf(const std::vector<cuda::Wave>& waves) {
  std::vector<int64_t> chunks;
  for (const cuda::Wave& wave : waves) chunks.push_back(wave.num_chunks);
  return chunks;
}

using Chunks = std::vector<int64_t>;

TEST(BackendWavesTest, ACallOfGramHasAsManySlicesAsTheServerAsksFor) {
  EXPECT_EQ(
      ChunksOf(GramWaves(8, 130 * kMi + 1)),
      (Chunks{64 * kSliceChunks, 64 * kSliceChunks, 2 * kSliceChunks + 1}));
  EXPECT_EQ(ChunksOf(GramWaves(32, 16 * kMi)), (Chunks{16 * kSliceChunks}));
  // 5050 products per element: 18 slices are less than 1e11 of them, and the
  // partial sums of 12 fit.
  EXPECT_EQ(ChunksOf(GramWaves(100, 20 * kMi)),
            (Chunks{12 * kSliceChunks, 6 * kSliceChunks, 2 * kSliceChunks}));
  // 5 slices of 200 rows are more than 1e11 products; partial sums of 3 fit.
  EXPECT_EQ(ChunksOf(GramWaves(200, 5 * kMi)),
            (Chunks{3 * kSliceChunks, kSliceChunks, kSliceChunks}));
}

TEST(BackendWavesTest, ASliceOfManyRowsTakesSeveralWaves) {
  // 131328 pairs: the partial sums of 31 chunks fit.
  EXPECT_EQ(ChunksOf(GramWaves(512, kMi)), (Chunks{31, 31, 2}));
}

TEST(BackendWavesTest, AnUpdateIsOneCall) {
  EXPECT_EQ(ChunksOf(UpdateWaves(8, 40 * kMi)), (Chunks{40 * kSliceChunks}));
  EXPECT_EQ(ChunksOf(UpdateWaves(2, 300 * kMi)),
            (Chunks{256 * kSliceChunks, 44 * kSliceChunks}));
}

TEST(BackendWavesTest, AllSlicesMayBeOneWave) {
  const cuda::Wave wave = OneWave(70 * kMi + 1);
  EXPECT_EQ(wave.num_chunks, 70 * kSliceChunks + 1);
  EXPECT_EQ(wave.slots.size(), 71u);
}

}  // namespace
}  // namespace agg
