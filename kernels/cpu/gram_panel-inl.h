// Cuts a panel of rows into tiles, per Highway target: which tiles there are,
// in which order they come, and what each reads. gram_kernel.cc calls it for
// each panel of a block; the loops along the elements are in gram_tiles-inl.h.

#if defined(AGG_KERNELS_CPU_GRAM_PANEL_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)  // NOLINT
#ifdef AGG_KERNELS_CPU_GRAM_PANEL_INL_H_
#undef AGG_KERNELS_CPU_GRAM_PANEL_INL_H_
#else
#define AGG_KERNELS_CPU_GRAM_PANEL_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/gram_lanes.h"
#include "kernels/cpu/gram_layout.h"
#include "kernels/cpu/gram_tiles-inl.h"
#include "kernels/cpu/load_double-inl.h"

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

}  // namespace HWY_NAMESPACE
}  // namespace agg
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
