// Tiles of 4 x 4 pairs of rows: a vector of elements is widened to 16 bits once
// and multiplied four times. A block of scales of 32 rows is 8 KiB, so that all
// its tiles read from the L1 cache.
//
// Compiled once for each instruction set by Highway, which includes this file
// again and again (foreach_target.h) and chooses at run time.
#include "kernels/cpu/gram_int8_kernel.h"

#include <algorithm>

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gram_int8_kernel.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include "hwy/highway.h"
#include "kernels/backend.h"
#include "kernels/cpu/gram_layout.h"
#include "kernels/double_pair.h"
#include "kernels/row_format.h"

HWY_BEFORE_NAMESPACE();
namespace agg {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using WideTag = hn::ScalableTag<int16_t>;
using SumTag = hn::RepartitionToWide<WideTag>;
using SumVec = hn::Vec<SumTag>;

// The rows of a tile from the block of scales on that is computed.
struct TileRows {
  const int8_t* at[kTileRows] = {};
};

// to[i] <- the sum of the lanes of sums[i] and others[i]. Pairs of vectors are
// interleaved and added, so that all four share the shuffles. Measured on a Zen
// 4 against one sum after the other: the Gram takes half the time at P = 4
// and 8.
HWY_INLINE void SumLanesOfFour(const SumVec* sums, const SumVec* others,
                               int32_t* to) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 4; ++i) {
    to[i] = hn::GetLane(hn::Add(sums[i], others[i]));
  }
#else
  const SumTag d32;
  const hn::RepartitionToWide<SumTag> d64;
  SumVec pairs[2];
  for (int i = 0; i < 2; ++i) {
    const SumVec a = hn::Add(sums[2 * i], others[2 * i]);
    const SumVec b = hn::Add(sums[2 * i + 1], others[2 * i + 1]);
    pairs[i] =
        hn::Add(hn::InterleaveLower(d32, a, b), hn::InterleaveUpper(d32, a, b));
  }
  const auto ab = hn::BitCast(d64, pairs[0]);
  const auto cd = hn::BitCast(d64, pairs[1]);
  // Each 128-bit block has the four sums of its lanes.
  const SumVec all =
      hn::Add(hn::BitCast(d32, hn::InterleaveLower(d64, ab, cd)),
              hn::BitCast(d32, hn::InterleaveUpper(d64, ab, cd)));
  alignas(64) int32_t blocks[hn::MaxLanes(SumTag())];
  hn::Store(all, d32, blocks);
  const hn::CappedTag<int32_t, 4> d128;
  auto total = hn::Load(d128, blocks);
  for (size_t block = 4; block < hn::Lanes(d32); block += 4) {
    total = hn::Add(total, hn::Load(d128, blocks + block));
  }
  hn::StoreU(total, d128, to);
#endif
}

// Elements that are fetched ahead: hardware follows many rows of so few bytes
// badly.
constexpr int64_t kAheadElements = 1024;

// dots[r][c] <- sum of rows.at[r][k] * columns.at[c][k]. kDiagonal: the rows
// are the columns, and only c >= r means anything. What is beyond R and C does
// not, either.
template <int R, int C, bool kDiagonal>
HWY_NOINLINE void DotTile(const TileRows& rows, const TileRows& columns,
                          int64_t num_elements, int32_t (*dots)[kTileRows]) {
  const WideTag d16;
  const SumTag d32;
  const hn::Rebind<int8_t, WideTag> d8;
  const int64_t num_lanes = static_cast<int64_t>(hn::Lanes(d16));
  SumVec sums[R][kTileRows];
  SumVec others[R][kTileRows];  // that some targets split their sums into
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < kTileRows; ++c) {
      sums[r][c] = others[r][c] = hn::Zero(d32);
    }
  }
  int64_t k = 0;
  for (; k + num_lanes <= num_elements; k += num_lanes) {
    hn::Vec<WideTag> column[C];
    for (int c = 0; c < C; ++c) {
      column[c] = hn::PromoteTo(d16, hn::LoadU(d8, columns.at[c] + k));
      if (kDiagonal) {
        __builtin_prefetch(columns.at[c] + k + kAheadElements, 0, 3);
      }
    }
    for (int r = 0; r < R; ++r) {
      const auto row = kDiagonal
                           ? column[r]
                           : hn::PromoteTo(d16, hn::LoadU(d8, rows.at[r] + k));
      for (int c = kDiagonal ? r : 0; c < C; ++c) {
        sums[r][c] = hn::ReorderWidenMulAccumulate(d32, row, column[c],
                                                   sums[r][c], others[r][c]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    SumLanesOfFour(sums[r], others[r], dots[r]);
  }
  for (; k < num_elements; ++k) {
    for (int r = 0; r < R; ++r) {
      for (int c = kDiagonal ? r : 0; c < C; ++c) {
        dots[r][c] += rows.at[r][k] * columns.at[c][k];
      }
    }
  }
}

using DotFunction = void (*)(const TileRows& rows, const TileRows& columns,
                             int64_t num_elements, int32_t (*dots)[kTileRows]);

// A tile beside the diagonal always has all of its 4 rows.
DotFunction ChooseDot(bool diagonal, int64_t num_columns) {
  switch (num_columns) {
    case 1:
      return diagonal ? &DotTile<1, 1, true> : &DotTile<4, 1, false>;
    case 2:
      return diagonal ? &DotTile<2, 2, true> : &DotTile<4, 2, false>;
    case 3:
      return diagonal ? &DotTile<3, 3, true> : &DotTile<4, 3, false>;
    default:
      return diagonal ? &DotTile<4, 4, true> : &DotTile<4, 4, false>;
  }
}

// Adds dot * (the scales' product) to a pair's sum. The product of two scales
// has 48 bits: exact.
HWY_INLINE void AddScaled(int32_t dot, double scale, int64_t pair,
                          const Int8GramBlock& block) {
  if (block.lo == nullptr) {
    block.hi[pair] += scale * dot;
    return;
  }
  const DoublePair sum = PairAdd(DoublePair{block.hi[pair], block.lo[pair]},
                                 TwoProduct<double>(scale, dot));
  block.hi[pair] = sum.hi;
  block.lo[pair] = sum.lo;
}

TileRows RowsAt(const Int8GramBlock& block, int64_t first, int64_t begin) {
  TileRows rows;
  for (int64_t r = first; r < std::min(first + kTileRows, block.num_rows);
       ++r) {
    rows.at[r - first] = reinterpret_cast<const int8_t*>(block.rows[r]) + begin;
  }
  return rows;
}

// All pairs of one block of scales.
void AddScaleBlock(const Int8GramBlock& block, int64_t scale_index) {
  const int64_t begin = scale_index * kScaleBlockElements;
  const int64_t num_elements =
      std::min(kScaleBlockElements, block.num_elements - begin);
  for (int64_t i = 0; i < block.num_rows; i += kTileRows) {
    const TileRows rows = RowsAt(block, i, begin);
    for (int64_t j = i; j < block.num_rows; j += kTileRows) {
      const TileRows columns = RowsAt(block, j, begin);
      int32_t dots[kTileRows][kTileRows];
      ChooseDot(i == j, std::min(kTileRows, block.num_rows - j))(
          rows, columns, num_elements, dots);
      for (int64_t r = i; r < std::min(i + kTileRows, block.num_rows); ++r) {
        const double scale = block.scales[r][scale_index];
        for (int64_t c = std::max(r, j);
             c < std::min(j + kTileRows, block.num_rows); ++c) {
          AddScaled(dots[r - i][c - j], scale * block.scales[c][scale_index],
                    DiagonalIndex(r, block.num_rows) + c - r, block);
        }
      }
    }
  }
}

void AccumulateInt8Block(const Int8GramBlock& block) {
  for (int64_t b = 0; b < NumScales(block.num_elements); ++b) {
    AddScaleBlock(block, b);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace agg
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace agg {
namespace {

HWY_EXPORT(AccumulateInt8Block);

}  // namespace

void ComputeInt8GramBlock(const Int8GramBlock& block) {
  const int64_t num_pairs = PackedGramSize(block.num_rows);
  std::fill_n(block.hi, num_pairs, 0.0);
  if (block.lo != nullptr) std::fill_n(block.lo, num_pairs, 0.0);
  HWY_DYNAMIC_DISPATCH(AccumulateInt8Block)(block);
}

}  // namespace agg
#endif  // HWY_ONCE
