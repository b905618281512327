// The launches on the emulated device, in several waves: what only large
// tensors have.
#include "tests/bench/kernel_work.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/kernel_args.h"
#include "kernels/cuda/numa_node.h"
#include "tests/bench/cuda_must.h"
#include "tests/kernels/cuda/emulator/device.h"

namespace agg {
namespace {

// Three slices; a wave each.
constexpr int64_t kSliceElements = 64;
constexpr int64_t kNumElements = 3 * kSliceElements;

class KernelWorkTest : public testing::Test {
 protected:
  // Rows of ones. 500 of them have their addresses in pinned memory.
  void Make(int num_rows) {
    for (int r = 0; r < num_rows; ++r) {
      memory_.push_back(Must(cuda::AllocateDevice(kNumElements * 4)));
      Fill(memory_.back().get());
      rows_.rows.push_back(memory_.back().get());
    }
    rows_.num_elements = kNumElements;
  }

  static void Fill(char* memory) {
    auto* const values = reinterpret_cast<float*>(memory);
    for (int64_t k = 0; k < kNumElements; ++k) values[k] = 1.0f;
  }

  const std::vector<cuda::Wave> waves_ = cuda::PlanWaves(
      std::vector<ElementRange>{{0, kSliceElements},
                                {kSliceElements, kSliceElements},
                                {2 * kSliceElements, kSliceElements}},
      /*max_chunks=*/1, /*max_slots=*/1);
  const cuda::Stream stream_ = Must(cuda::MakeStream());
  cuda::ArgsBlock args_ = Must(cuda::ArgsBlock::Make(cuda::NumaNode()));
  std::vector<cuda::DeviceMemory> memory_;
  DeviceRows rows_;
};

TEST_F(KernelWorkTest, AWaveOfGramIsFollowedByItsSums) {
  for (const int num_rows : {2, 500}) {
    memory_.clear();
    rows_ = DeviceRows();
    Make(num_rows);
    const GramWork work(rows_, waves_, &args_);
    EXPECT_EQ(work.num_launches(), 6);
    const int64_t before = emulator::NumCalls().launches;
    work.Launch(/*double_float=*/false, stream_.get());
    Must(cudaStreamSynchronize(stream_.get()));
    // More than 32 rows take two kernels.
    EXPECT_EQ(emulator::NumCalls().launches - before, num_rows > 2 ? 9 : 6);
    // Of the last wave.
    EXPECT_EQ(work.host_sums()[0], 64.0);
    EXPECT_EQ(work.host_sums()[PackedGramSize(num_rows) - 1], 64.0);
  }
}

TEST_F(KernelWorkTest, AnUpdateStepsEveryElementOnce) {
  Make(3);
  OptimizerOptions optimizer;
  optimizer.kind = OptimizerKind::kAdamW;
  const UpdateWork work(
      rows_, optimizer, waves_, [](char* memory, int64_t) { Fill(memory); },
      &args_);
  EXPECT_EQ(work.num_launches(), 3);
  ASSERT_EQ(work.arrays().size(), 3u);
  work.Launch(stream_.get());
  Must(cudaStreamSynchronize(stream_.get()));
  for (const cuda::DeviceMemory& array : work.arrays()) {
    const auto* const values = reinterpret_cast<const float*>(array.get());
    EXPECT_NE(values[0], array == work.arrays()[0] ? 1.0f : 0.0f);
    for (int64_t k = 1; k < kNumElements; ++k) {
      ASSERT_EQ(values[k], values[0]) << k;
    }
  }
}

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
