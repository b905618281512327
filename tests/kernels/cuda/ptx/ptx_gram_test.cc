// The PTX of the Gram kernels, launched as the backend launches them, beside
// slow sums.
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/cuda/chunk.h"
#include "kernels/cuda/gram_kernel.h"
#include "kernels/cuda/gram_tile.h"
#include "kernels/dtype.h"
#include "tests/conformance/oracle.h"
#include "tests/kernels/cuda/ptx/launch_data.h"

namespace agg::ptx {
namespace {

enum class Arithmetic { kDouble, kPairs, kFloats, kInt8, kInt8Pairs };

bool HasPairs(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::kPairs ||
         arithmetic == Arithmetic::kInt8Pairs;
}

cudaError_t LaunchOf(Arithmetic arithmetic, const cuda::GramLaunch& launch,
                     cudaStream_t stream) {
  switch (arithmetic) {
    case Arithmetic::kDouble:
      return LaunchGram(launch, stream);
    case Arithmetic::kPairs:
      return LaunchGramPairs(launch, stream);
    case Arithmetic::kFloats:
      return LaunchGramDoubleFloat(launch, stream);
    case Arithmetic::kInt8:
      return LaunchGramInt8(launch, false, stream);
    case Arithmetic::kInt8Pairs:
      return LaunchGramInt8(launch, true, stream);
  }
  return cudaErrorInvalidValue;
}

// What gram_kernel.h allows an entry to be off by.
double Bound(Arithmetic arithmetic, int64_t n, double magnitude) {
  const double blocks = std::ceil(static_cast<double>(n) / 256) + 8;
  switch (arithmetic) {
    case Arithmetic::kDouble:
      return static_cast<double>(n) * 0x1p-53 * magnitude;
    case Arithmetic::kPairs:
      return static_cast<double>(n) * 0x1p-104 * magnitude;
    case Arithmetic::kFloats:
      return cuda::kDoubleFloatUnit * magnitude +
             static_cast<double>(n) * 0x1p-150;
    case Arithmetic::kInt8:
      return blocks * 0x1p-53 * magnitude;
    case Arithmetic::kInt8Pairs:
      return blocks * 0x1p-104 * magnitude;
  }
  return 0.0;
}

struct Sums {
  std::vector<double> hi, lo;  // [chunk][pair]
  std::vector<double> of_ranges_hi, of_ranges_lo;
};

class PtxGramTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, 0), cudaSuccess);
  }
  void TearDown() override { cudaStreamDestroy(stream_); }

  Sums RunOne(Arithmetic arithmetic, const LaunchRows& rows, DType dtype,
              const Ranges& ranges, const RunCase& run) {
    Use(run);
    cuda::GramLaunch launch;
    ArgumentPlaces places(run.pinned, &launch.args);
    launch.rows = places.Put(rows.pointers());
    launch.num_rows = static_cast<int>(rows.pointers().size());
    launch.dtype = static_cast<int>(dtype);
    launch.scale_offset = rows.scale_offset();
    launch.slots = places.Put(ranges.slots);
    launch.num_slots = static_cast<int32_t>(ranges.slots.size());
    launch.num_chunks = ranges.num_chunks;
    const auto chunks =
        ArrayIn(PinnedMemory(ranges.num_chunks * sizeof(cuda::Chunk)),
                ChunksOf(ranges));
    if (run.pinned) launch.chunks = chunks.data;
    const int64_t num_pairs = PackedGramSize(launch.num_rows);
    const std::vector<double> unwritten(ranges.num_chunks * num_pairs, -1e99);
    const auto hi = DeviceArray(unwritten);
    const auto lo = DeviceArray(unwritten);
    launch.partial = hi.data;
    if (HasPairs(arithmetic)) launch.partial_lo = lo.data;
    EXPECT_EQ(LaunchOf(arithmetic, launch, stream_), cudaSuccess);
    Sums sums{hi.values(), lo.values(), {}, {}};
    AddUp(launch, ranges, run, &sums);
    return sums;
  }

  void AddUp(const cuda::GramLaunch& of, const Ranges& ranges,
             const RunCase& run, Sums* sums) {
    cuda::SumLaunch launch;
    ArgumentPlaces places(run.pinned, &launch.args);
    launch.partial = of.partial;
    launch.partial_lo = of.partial_lo;
    launch.slots = places.Put(ranges.slots);
    launch.num_slots = static_cast<int64_t>(ranges.slots.size());
    launch.num_values = PackedGramSize(of.num_rows);
    const std::vector<double> unwritten(launch.num_slots * launch.num_values);
    const auto hi = DeviceArray(unwritten);
    const auto lo = DeviceArray(unwritten);
    launch.sums = hi.data;
    if (of.partial_lo != nullptr) launch.sums_lo = lo.data;
    EXPECT_EQ(LaunchSums(launch, stream_), cudaSuccess);
    sums->of_ranges_hi = hi.values();
    sums->of_ranges_lo = lo.values();
  }

  void ExpectNear(Arithmetic arithmetic, const LaunchRows& rows,
                  const Ranges& ranges, const Sums& sums) {
    const auto num_rows = static_cast<int>(rows.pointers().size());
    int64_t at = 0;
    for (const cuda::Chunk& chunk : ChunksOf(ranges)) {
      std::vector<std::vector<double>> values;
      for (int i = 0; i < num_rows; ++i) {
        values.push_back(rows.Values(i, chunk));
      }
      for (int i = 0; i < num_rows; ++i) {
        for (int j = i; j < num_rows; ++j, ++at) {
          const oracle::Dot dot = oracle::ExactDot(values[i], values[j]);
          const __float128 sum = static_cast<__float128>(sums.hi[at]) +
                                 (HasPairs(arithmetic) ? sums.lo[at] : 0.0);
          ASSERT_LE(std::abs(static_cast<double>(sum - dot.sum)),
                    Bound(arithmetic, chunk.num_elements,
                          static_cast<double>(dot.magnitude)))
              << chunk.num_elements << " elements, " << i << "," << j;
        }
      }
    }
  }

  // All cases: near the slow sums, and of the same bits.
  void Check(Arithmetic arithmetic, int num_rows, DType dtype,
             const Ranges& ranges, const std::vector<RunCase>& runs,
             float last_scale = 1.0f) {
    SCOPED_TRACE(testing::Message()
                 << "arithmetic " << static_cast<int>(arithmetic) << ", "
                 << num_rows << " rows, dtype " << static_cast<int>(dtype));
    const LaunchRows rows(dtype, num_rows, ranges, last_scale);
    Sums first;
    for (const RunCase& run : runs) {
      SCOPED_TRACE(NameOf(run));
      const Sums sums = RunOne(arithmetic, rows, dtype, ranges, run);
      if (first.hi.empty()) {
        ExpectNear(arithmetic, rows, ranges, sums);
        first = sums;
      }
      EXPECT_EQ(sums.hi, first.hi);
      EXPECT_EQ(sums.lo, first.lo);
      EXPECT_EQ(sums.of_ranges_hi, first.of_ranges_hi);
      EXPECT_EQ(sums.of_ranges_lo, first.of_ranges_lo);
    }
  }

  cudaStream_t stream_ = nullptr;
};

constexpr DType kFloats[] = {DType::kF32, DType::kBF16, DType::kF16};

TEST_F(PtxGramTest, OfFewRows) {
  for (const DType dtype : kFloats) {
    for (int num_rows = 1; num_rows <= 8; ++num_rows) {
      Check(Arithmetic::kDouble, num_rows, dtype, TailRanges(), RunCases());
    }
  }
}

// Either card's own instruction, to the bit: the order of the additions within
// a product is the interpreter's for both.
TEST_F(PtxGramTest, OfManyRows) {
  for (const DType dtype : kFloats) {
    for (const int num_rows : {9, 16, 17, 24, 25, 32, 33, 40}) {
      Check(Arithmetic::kDouble, num_rows, dtype, TailRanges(), RunCases());
    }
  }
}

TEST_F(PtxGramTest, OfThreePanels) {
  Check(Arithmetic::kDouble, 70, DType::kF32, RangesOf({300}), RunCases());
}

TEST_F(PtxGramTest, InPairs) {
  for (const DType dtype : kFloats) {
    for (const int num_rows : {1, 4, 5, 9}) {
      Check(Arithmetic::kPairs, num_rows, dtype, TailRanges(), RunCases());
      Check(Arithmetic::kFloats, num_rows, dtype, TailRanges(), RunCases());
    }
  }
}

// Rows that pairs of floats are not fit for are summed once more, in double.
TEST_F(PtxGramTest, InPairsOfFloatsOfUnfitRows) {
  for (const float last_scale : {0x1p-60f, 0x1p60f}) {
    Check(Arithmetic::kFloats, 6, DType::kF32, TailRanges(), RunCases(),
          last_scale);
  }
}

TEST_F(PtxGramTest, OfInt8) {
  for (const int num_rows : {1, 4, 5, 9}) {
    Check(Arithmetic::kInt8, num_rows, DType::kI8, TailRanges(), RunCases());
    Check(Arithmetic::kInt8Pairs, num_rows, DType::kI8, TailRanges(),
          RunCases());
  }
}

TEST_F(PtxGramTest, OfMoreThanAChunk) {
  const Ranges ranges = RangesOf({cuda::kChunkElements + 777, 5});
  const std::vector<RunCase> runs = {{80, 0, false}, {90, 0, false}};
  Check(Arithmetic::kDouble, 5, DType::kBF16, ranges, runs);
  Check(Arithmetic::kDouble, 18, DType::kF32, ranges, runs);
  Check(Arithmetic::kPairs, 2, DType::kF16, ranges, runs);
  Check(Arithmetic::kFloats, 3, DType::kF32, ranges, runs);
  Check(Arithmetic::kInt8, 3, DType::kI8, ranges, runs);
}

// The two ends of the cuBLAS Gram.
TEST_F(PtxGramTest, ConvertsToTiles) {
  const Ranges ranges = RangesOf({700});
  constexpr int kFilled = 1024;
  for (const DType dtype : kFloats) {
    const LaunchRows rows(dtype, 3, ranges);
    for (const RunCase& run : RunCases()) {
      Use(run);
      cuda::ConvertLaunch launch;
      ArgumentPlaces places(run.pinned, &launch.args);
      launch.rows = places.Put(rows.pointers());
      launch.num_rows = 3;
      launch.dtype = static_cast<int>(dtype);
      launch.begin = ranges.slots[0].begin;
      launch.num_elements = 700;
      launch.num_filled = kFilled;
      launch.row_stride = kFilled;
      const auto tile = DeviceArray(std::vector<double>(3 * kFilled, -1.0));
      launch.tile = tile.data;
      ASSERT_EQ(LaunchConvert(launch, stream_), cudaSuccess);
      for (int row = 0; row < 3; ++row) {
        std::vector<double> expected = rows.Values(row, ChunksOf(ranges)[0]);
        expected.resize(kFilled);
        const auto begin = tile.data + row * kFilled;
        EXPECT_EQ(std::vector<double>(begin, begin + kFilled), expected);
      }
    }
  }
}

TEST_F(PtxGramTest, GathersMatrices) {
  constexpr int kRows = 20;
  constexpr int kBatches = 3;
  std::vector<double> matrices;
  for (int i = 0; i < kBatches * kRows * kRows; ++i) matrices.push_back(i * i);
  const auto from = DeviceArray(matrices);
  std::vector<double> expected;
  for (int i = 0; i < kRows; ++i) {
    for (int j = i; j < kRows; ++j) {
      double sum = 0.5;
      for (int batch = 0; batch < kBatches; ++batch) {
        sum += matrices[(batch * kRows + j) * kRows + i];
      }
      expected.push_back(sum);
    }
  }
  for (const RunCase& run : RunCases()) {
    Use(run);
    const auto sums = DeviceArray(std::vector<double>(expected.size(), 0.5));
    ASSERT_EQ(
        cuda::LaunchGather({from.data, kBatches, kRows, sums.data}, stream_),
        cudaSuccess);
    EXPECT_EQ(sums.values(), expected);
  }
}

}  // namespace
}  // namespace agg::ptx
