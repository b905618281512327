// The waves of a pipelined round: their bounds are what all processes of a job
// have to agree on.
#include "proto/wave_plan.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kEnough = kMinWaveElements;

Manifest TensorsOf(const std::vector<int64_t>& sizes) {
  Manifest manifest;
  for (const int64_t size : sizes) {
    manifest.tensors.push_back(
        {absl::StrCat("t", manifest.tensors.size()), {size}, "", false});
  }
  return manifest;
}

TEST(WavePlanTest, SmallTensorsGoTogether) {
  EXPECT_THAT(MakeWaves(TensorsOf({1, 2, 3})), ElementsAre(Wave{0, 3}));
  EXPECT_THAT(MakeWaves(TensorsOf({kEnough - 1, 1, 5, 7})),
              ElementsAre(Wave{0, 2}, Wave{2, 4}));
}

TEST(WavePlanTest, LargeTensorsAreWavesOfTheirOwn) {
  EXPECT_THAT(MakeWaves(TensorsOf({kEnough, 40 * kEnough, kEnough})),
              ElementsAre(Wave{0, 2}, Wave{2, 3}));
  EXPECT_THAT(MakeWaves(TensorsOf({kEnough, kEnough, kEnough})),
              ElementsAre(Wave{0, 1}, Wave{1, 2}, Wave{2, 3}));
}

TEST(WavePlanTest, EmptyTensorsMakeNoWave) {
  EXPECT_THAT(MakeWaves(TensorsOf({0, 0})), ElementsAre(Wave{0, 2}));
  EXPECT_THAT(MakeWaves(TensorsOf({0, kEnough, 0, 0})),
              ElementsAre(Wave{0, 4}));
}

TEST(WavePlanTest, CoversAllTensorsInAtMostSoManyWaves) {
  for (const int64_t size :
       {int64_t{1}, int64_t{1000}, kEnough / 3, kEnough, 3 * kEnough}) {
    for (const size_t count : {1, 7, 100, 1000}) {
      const std::vector<Wave> waves =
          MakeWaves(TensorsOf(std::vector<int64_t>(count, size)));
      ASSERT_FALSE(waves.empty());
      EXPECT_LE(waves.size(), size_t{kMaxWaves});
      int32_t next = 0;
      for (const Wave& wave : waves) {
        EXPECT_EQ(wave.begin, next);
        EXPECT_GT(wave.end, wave.begin);
        next = wave.end;
      }
      EXPECT_EQ(next, static_cast<int32_t>(count));
    }
  }
}

}  // namespace
}  // namespace agg
