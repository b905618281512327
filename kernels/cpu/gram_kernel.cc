// The Gram matrix G = R R^T of P rows over one block of elements, on a CPU's
// SIMD units.
//
// What is computed: for each pair of rows i <= j the sum over k of
// row_i[k] row_j[k], in double, kept as 8 lanes (gram_layout.h), which are
// added up at the end. Compensated: each lane is a pair of doubles.
//
// What a tile is: up to 4 x 4 pairs of rows, whose sums stay in registers while
// the kernel goes along the elements (gram_tiles-inl.h). A triangle is a tile
// on the diagonal of G (rows with themselves), a rectangle one beside it.
//
//   rows     how the block is read
//   1 .. 4   one triangle, rows in place
//   5 ..     panels: a few hundred elements of all rows; triangles convert them
//            to double on their way, rectangles read the converted ones
//
// Called by gram.cc, once per block and from any thread; everything that is
// written is in GramBlock. The result has the same bits for every SIMD target:
// neither tiles nor panels change the order of any pair's additions.
//
// Highway compiles the part between HWY_BEFORE_NAMESPACE and
// HWY_AFTER_NAMESPACE once per target (foreach_target.h includes this file
// again); HWY_DYNAMIC_DISPATCH picks one at run time.
#include "kernels/cpu/gram_kernel.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gram_kernel.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include "hwy/highway.h"
#include "kernels/backend.h"
#include "kernels/cpu/gram_layout.h"
#include "kernels/cpu/gram_tiles-inl.h"
#include "kernels/cpu/load_double-inl.h"
#include "kernels/double_pair.h"
#include "kernels/row_format.h"

HWY_BEFORE_NAMESPACE();
namespace agg {
namespace HWY_NAMESPACE {

// --- Which tiles a panel of rows is cut into, in which order they come, and
// what each reads.

// Rows of one or more groups of 8 elements: a block's rows from element
// `begin` on, or copies, `stride` apart.
template <class Element>
struct Source {
  using Storage = typename Element::Storage;
  const char* const* rows = nullptr;
  int64_t begin = 0;
  const Storage* copies = nullptr;  // instead of rows
  int64_t num_elements = 0;         // a multiple of 8
  int64_t prefetch_elements = 0;

  // Returns what tile `tile` of `num_tiles` fetches: of the rows tile, tile +
  // num_tiles and so on, three at most. A tile with fewer rows fetches some
  // bytes of the panel itself in place of the others.
  Prefetch PrefetchOf(int64_t tile, int64_t num_tiles, int64_t num_rows) const {
    Prefetch prefetch;
    prefetch.element_bytes = sizeof(Storage);
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t r = tile + i * num_tiles;
      prefetch.at[i] = reinterpret_cast<const char*>(
          r < num_rows ? row(r) + prefetch_elements : row(tile % num_rows));
    }
    return prefetch;
  }

  const Storage* row(int64_t r) const {
    return copies != nullptr
               ? copies + r * kGramLanes
               : reinterpret_cast<const Storage*>(rows[r]) + begin;
  }
};

// Pointers to 4 rows of the panel, of which those beyond the last are unused.
struct PanelRows {
  PanelRows(double* panel, int64_t stride, int64_t row) {
    for (int64_t r = 0; r < kTileRows; ++r) at[r] = panel + (row + r) * stride;
  }
  double* at[kTileRows];
};

// Pointers to the lanes of the pairs (row + r, column).
struct LanePointers {
  LanePointers(double* lanes, int64_t num_rows, int64_t row, int64_t column) {
    for (int64_t r = row; r < std::min(row + kTileRows, num_rows); ++r) {
      at[r - row] =
          lanes + kGramLanes * (DiagonalIndex(r, num_rows) + column - r);
    }
  }
  double* at[kTileRows] = {};
};

template <class Element, bool kStore>
void Triangle(const Source<Element>& source, int64_t first_row,
              int64_t num_rows, const Prefetch& prefetch, double* const* lanes,
              double* const* panel) {
  const typename Element::Storage* rows[kTileRows] = {};
  for (int64_t r = 0; r < num_rows; ++r) rows[r] = source.row(first_row + r);
  const auto accumulate =
      num_rows == 1   ? &AccumulateTriangle<Element, 1, kStore>
      : num_rows == 2 ? &AccumulateTriangle<Element, 2, kStore>
      : num_rows == 3 ? &AccumulateTriangle<Element, 3, kStore>
                      : &AccumulateTriangle<Element, 4, kStore>;
  accumulate(rows, source.num_elements, prefetch, lanes, panel);
}

// A tile right of the diagonal always has all of its 4 rows.
inline void Rectangle(const PanelRows& rows, const PanelRows& columns,
                      int64_t num_columns, int64_t num_elements,
                      const Prefetch& prefetch, double* const* lanes) {
  const auto accumulate = num_columns == 1   ? &AccumulateRectangle<1>
                          : num_columns == 2 ? &AccumulateRectangle<2>
                          : num_columns == 3 ? &AccumulateRectangle<3>
                                             : &AccumulateRectangle<4>;
  accumulate(rows.at, columns.at, num_elements, prefetch, lanes);
}

// Accumulates all tiles of the panel, from the last tile row up, so that the
// columns of a rectangle have been converted when it comes.
template <class Element>
void AccumulatePlain(const Source<Element>& source, int64_t num_rows,
                     const GramScratch& scratch) {
  const int64_t stride = PanelStride(num_rows);
  const int64_t num_tile_rows = (num_rows + kTileRows - 1) / kTileRows;
  const int64_t num_tiles = num_tile_rows * (num_tile_rows + 1) / 2;
  const int64_t last = (num_tile_rows - 1) * kTileRows;
  int64_t tile = 0;
  for (int64_t i = last; i >= 0; i -= kTileRows) {
    const PanelRows rows(scratch.panel, stride, i);
    const LanePointers diagonal(scratch.hi_lanes, num_rows, i, i);
    Triangle<Element, true>(source, i, std::min(kTileRows, num_rows - i),
                            source.PrefetchOf(tile++, num_tiles, num_rows),
                            diagonal.at, rows.at);
    for (int64_t j = i + kTileRows; j < num_rows; j += kTileRows) {
      const PanelRows columns(scratch.panel, stride, j);
      const LanePointers lanes(scratch.hi_lanes, num_rows, i, j);
      Rectangle(rows, columns, std::min(kTileRows, num_rows - j),
                source.num_elements,
                source.PrefetchOf(tile++, num_tiles, num_rows), lanes.at);
    }
  }
}

template <class Element>
void AccumulateCompensated(const Source<Element>& source, int64_t num_rows,
                           const GramScratch& scratch) {
  const LaneTag d;
  const int64_t stride = PanelStride(num_rows);
  for (int64_t r = 0; r < num_rows; ++r) {
    for (int64_t k = 0; k < source.num_elements; k += hn::MaxLanes(d)) {
      hn::StoreU(LoadDouble(d, Element(), source.row(r) + k), d,
                 scratch.panel + r * stride + k);
    }
  }
  for (int64_t i = 0; i < num_rows; ++i) {
    for (int64_t j = i; j < num_rows; j += kTileRows) {
      const PanelRows columns(scratch.panel, stride, j);
      const int64_t num_columns = std::min(kTileRows, num_rows - j);
      const int64_t pair = kGramLanes * (DiagonalIndex(i, num_rows) + j - i);
      const auto accumulate = num_columns == 1   ? &AccumulatePairs<1>
                              : num_columns == 2 ? &AccumulatePairs<2>
                              : num_columns == 3 ? &AccumulatePairs<3>
                                                 : &AccumulatePairs<4>;
      accumulate(scratch.panel + i * stride, columns.at, source.num_elements,
                 scratch.hi_lanes + pair, scratch.lo_lanes + pair);
    }
  }
}

// --- A block of rows of float32, bf16 or f16.

template <class Element>
void Accumulate(const GramBlock& block, const Source<Element>& source,
                const GramScratch& scratch) {
  if (block.lo != nullptr) {
    AccumulateCompensated(source, block.num_rows, scratch);
  } else if (block.num_rows > kTileRows) {
    AccumulatePlain(source, block.num_rows, scratch);
  } else {
    const LanePointers lanes(scratch.hi_lanes, block.num_rows, 0, 0);
    Triangle<Element, false>(source, 0, block.num_rows, Prefetch(), lanes.at,
                             nullptr);
  }
}

template <class Element>
void AccumulateBlock(const GramBlock& block, const GramScratch& scratch) {
  using Storage = typename Element::Storage;
  const bool in_place = block.num_rows <= kTileRows && block.lo == nullptr;
  const int64_t num_grouped = block.num_elements / kGramLanes * kGramLanes;
  const int64_t panel_elements =
      in_place ? block.num_elements : PanelElements(block.num_rows);
  Source<Element> source;
  source.rows = block.rows;
  source.prefetch_elements = in_place ? 0 : panel_elements;
  for (; source.begin < num_grouped; source.begin += source.num_elements) {
    source.num_elements = std::min(panel_elements, num_grouped - source.begin);
    Accumulate(block, source, scratch);
  }
  const int64_t num_left = block.num_elements - num_grouped;
  if (num_left == 0) return;
  // The last, incomplete group of 8 is copied and filled up with zeros: the
  // rows end there, so that it must not be read in place.
  Storage* const copies = reinterpret_cast<Storage*>(scratch.tail);
  std::fill(copies, copies + block.num_rows * kGramLanes, Storage());
  for (int64_t r = 0; r < block.num_rows; ++r) {
    const Storage* const from =
        reinterpret_cast<const Storage*>(block.rows[r]) + num_grouped;
    std::copy(from, from + num_left, copies + r * kGramLanes);
  }
  source.copies = copies;
  source.num_elements = kGramLanes;
  source.prefetch_elements = 0;
  Accumulate(block, source, scratch);
}

void AccumulateGramBlock(const GramBlock& block, const GramScratch& scratch) {
  switch (block.dtype) {
    case DType::kF32:
      return AccumulateBlock<F32Element>(block, scratch);
    case DType::kBF16:
      return AccumulateBlock<Bf16Element>(block, scratch);
    case DType::kF16:
      return AccumulateBlock<F16Element>(block, scratch);
    case DType::kI8:  // AccumulateInt8Block
      return;
  }
}

// --- A block of int8 rows: tiles of 4 x 4 pairs of rows, where a vector of
// elements is widened to 16 bits once and multiplied four times. A block of
// scales of 32 rows is 8 KiB, so that all its tiles read from the L1 cache.

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

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace agg
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace agg {
namespace {

HWY_EXPORT(AccumulateGramBlock);
HWY_EXPORT(AccumulateInt8Block);
HWY_EXPORT(TargetName);

DoublePair SumOfLanes(const double* hi, const double* lo) {
  DoublePair quarter[4];
  for (int l = 0; l < 4; ++l) {
    quarter[l] =
        PairAdd(DoublePair{hi[l], lo[l]}, DoublePair{hi[l + 4], lo[l + 4]});
  }
  return PairAdd(PairAdd(quarter[0], quarter[2]),
                 PairAdd(quarter[1], quarter[3]));
}

}  // namespace

int64_t GramScratchDoubles(int64_t num_rows) {
  return 2 * kGramLanes * PackedGramSize(num_rows) + kGramLanes * num_rows +
         num_rows * PanelStride(num_rows);
}

void ComputeGramBlock(const GramBlock& block) {
  assert(block.dtype != DType::kI8);
  const int64_t num_pairs = PackedGramSize(block.num_rows);
  GramScratch scratch;
  scratch.hi_lanes = block.scratch;
  scratch.lo_lanes = scratch.hi_lanes + kGramLanes * num_pairs;
  scratch.tail = scratch.lo_lanes + kGramLanes * num_pairs;
  scratch.panel = scratch.tail + kGramLanes * block.num_rows;
  std::fill(scratch.hi_lanes, scratch.tail, 0.0);
  HWY_DYNAMIC_DISPATCH(AccumulateGramBlock)(block, scratch);
  for (int64_t pair = 0; pair < num_pairs; ++pair) {
    const double* const hi = scratch.hi_lanes + kGramLanes * pair;
    if (block.lo == nullptr) {
      block.hi[pair] = SumOfGramLanes(hi);
    } else {
      const DoublePair sum =
          SumOfLanes(hi, scratch.lo_lanes + kGramLanes * pair);
      block.hi[pair] = sum.hi;
      block.lo[pair] = sum.lo;
    }
  }
}

void ComputeInt8GramBlock(const Int8GramBlock& block) {
  const int64_t num_pairs = PackedGramSize(block.num_rows);
  std::fill_n(block.hi, num_pairs, 0.0);
  if (block.lo != nullptr) std::fill_n(block.lo, num_pairs, 0.0);
  HWY_DYNAMIC_DISPATCH(AccumulateInt8Block)(block);
}

absl::string_view SimdTargetName() {
  return HWY_DYNAMIC_DISPATCH(TargetName)();
}

}  // namespace agg
#endif  // HWY_ONCE
