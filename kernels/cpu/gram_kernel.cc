#include "kernels/cpu/gram_kernel.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gram_kernel.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include "hwy/highway.h"
#include "kernels/backend.h"
#include "kernels/cpu/gram_lanes.h"
#include "kernels/cpu/gram_tiles-inl.h"
#include "kernels/cpu/load_double-inl.h"
#include "kernels/double_pair.h"

#ifndef AGG_KERNELS_CPU_GRAM_KERNEL_ONCE_
#define AGG_KERNELS_CPU_GRAM_KERNEL_ONCE_
namespace agg {

// Rows of a tile. Up to as many rows are read in place; more are converted to
// double first, a panel of all rows at a time, since each is used in several
// tiles.
constexpr int64_t kTileRows = 4;

// Elements per row of a panel: 64 KiB for all rows. Measured at P = 8, 16, 32
// on a Zen 4: 24 KiB (inside the L1 cache) is 1, 6 and 12% slower, since a tile
// then spends more of its time on loading and storing its sums; 128 KiB is no
// faster. The 4 rows of a tile stay in the L1 cache.
inline int64_t PanelElements(int64_t num_rows) {
  const int64_t fitting = 8192 / num_rows / kGramLanes * kGramLanes;
  return std::clamp<int64_t>(fitting, 32, 1024);
}

// Not a multiple of 4 KiB: rows would fall into the same sets of the L1 cache.
inline int64_t PanelStride(int64_t num_rows) {
  return PanelElements(num_rows) + kGramLanes;
}

// Index of pair (row, row) in the packed upper triangle.
inline int64_t DiagonalIndex(int64_t row, int64_t num_rows) {
  return row * num_rows - row * (row - 1) / 2;
}

// The parts of GramBlock::scratch.
struct GramScratch {
  double* hi_lanes = nullptr;  // 8 per pair
  double* lo_lanes = nullptr;  // 8 per pair
  double* tail = nullptr;      // 8 elements of all rows, of any type
  double* panel = nullptr;     // all rows, PanelStride() each
};

}  // namespace agg
#endif  // AGG_KERNELS_CPU_GRAM_KERNEL_ONCE_

HWY_BEFORE_NAMESPACE();
namespace agg {
namespace HWY_NAMESPACE {

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

  // What tile `tile` of `num_tiles` fetches: the rows tile, tile + num_tiles
  // and so on. One with less to do fetches what it has.
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
void Rectangle(const PanelRows& rows, const PanelRows& columns,
               int64_t num_columns, int64_t num_elements,
               const Prefetch& prefetch, double* const* lanes) {
  const auto accumulate = num_columns == 1   ? &AccumulateRectangle<1>
                          : num_columns == 2 ? &AccumulateRectangle<2>
                          : num_columns == 3 ? &AccumulateRectangle<3>
                                             : &AccumulateRectangle<4>;
  accumulate(rows.at, columns.at, num_elements, prefetch, lanes);
}

// From the last tile row up, so that the columns of a rectangle have been
// converted when it comes.
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
  const int64_t num_whole = block.num_elements / kGramLanes * kGramLanes;
  const int64_t panel_elements =
      in_place ? block.num_elements : PanelElements(block.num_rows);
  Source<Element> source;
  source.rows = block.rows;
  source.prefetch_elements = in_place ? 0 : panel_elements;
  for (; source.begin < num_whole; source.begin += source.num_elements) {
    source.num_elements = std::min(panel_elements, num_whole - source.begin);
    Accumulate(block, source, scratch);
  }
  const int64_t num_left = block.num_elements - num_whole;
  if (num_left == 0) return;
  Storage* const copies = reinterpret_cast<Storage*>(scratch.tail);
  std::fill(copies, copies + block.num_rows * kGramLanes, Storage());
  for (int64_t r = 0; r < block.num_rows; ++r) {
    const Storage* const from =
        reinterpret_cast<const Storage*>(block.rows[r]) + num_whole;
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

absl::string_view SimdTargetName() {
  return HWY_DYNAMIC_DISPATCH(TargetName)();
}

}  // namespace agg
#endif  // HWY_ONCE
