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

// Elements per row of a panel: 32 KiB for all rows, L1-sized.
inline int64_t PanelElements(int64_t num_rows) {
  const int64_t fitting = 4096 / num_rows / kGramLanes * kGramLanes;
  return std::clamp<int64_t>(fitting, 32, 2048);
}

// Index of pair (row, row) in the packed upper triangle.
inline int64_t DiagonalIndex(int64_t row, int64_t num_rows) {
  return row * num_rows - row * (row - 1) / 2;
}

// The parts of GramBlock::scratch.
struct GramScratch {
  double* hi_lanes = nullptr;  // 8 per pair
  double* lo_lanes = nullptr;  // 8 per pair
  double* panel = nullptr;     // all rows, PanelElements() each
};

}  // namespace agg
#endif  // AGG_KERNELS_CPU_GRAM_KERNEL_ONCE_

HWY_BEFORE_NAMESPACE();
namespace agg {
namespace HWY_NAMESPACE {

// A panel: `num_rows` rows of doubles, `stride` apart, zero-filled to whole
// groups of 8 elements. Pointers to 4 of its rows:
struct PanelRows {
  PanelRows(const double* panel, int64_t stride, int64_t row) {
    for (int64_t r = 0; r < kTileRows; ++r) at[r] = panel + (row + r) * stride;
  }
  const double* at[kTileRows];  // those beyond the last row are not used
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

template <class Element>
void Triangle(const typename Element::Storage* const* rows, int64_t num_rows,
              int64_t num_elements, double* const* lanes) {
  const auto accumulate =
      num_rows == 1   ? &AccumulateTile<Element, 1, 1, true>
      : num_rows == 2 ? &AccumulateTile<Element, 2, 2, true>
      : num_rows == 3 ? &AccumulateTile<Element, 3, 3, true>
                      : &AccumulateTile<Element, 4, 4, true>;
  accumulate(rows, rows, num_elements, lanes);
}

// A tile right of the diagonal always has all of its 4 rows.
void Rectangle(const double* const* rows, const double* const* columns,
               int64_t num_columns, int64_t num_elements,
               double* const* lanes) {
  const auto accumulate =
      num_columns == 1   ? &AccumulateTile<F64Element, 4, 1, false>
      : num_columns == 2 ? &AccumulateTile<F64Element, 4, 2, false>
      : num_columns == 3 ? &AccumulateTile<F64Element, 4, 3, false>
                         : &AccumulateTile<F64Element, 4, 4, false>;
  accumulate(rows, columns, num_elements, lanes);
}

void AccumulatePanel(const double* panel, int64_t stride, int64_t num_rows,
                     int64_t num_elements, double* lanes) {
  for (int64_t i = 0; i < num_rows; i += kTileRows) {
    const PanelRows rows(panel, stride, i);
    const LanePointers diagonal(lanes, num_rows, i, i);
    Triangle<F64Element>(rows.at, std::min(kTileRows, num_rows - i),
                         num_elements, diagonal.at);
    for (int64_t j = i + kTileRows; j < num_rows; j += kTileRows) {
      const PanelRows columns(panel, stride, j);
      const LanePointers tile(lanes, num_rows, i, j);
      Rectangle(rows.at, columns.at, std::min(kTileRows, num_rows - j),
                num_elements, tile.at);
    }
  }
}

void AccumulatePanelPairs(const double* panel, int64_t stride,
                          int64_t num_rows, int64_t num_elements,
                          double* hi_lanes, double* lo_lanes) {
  for (int64_t i = 0; i < num_rows; ++i) {
    for (int64_t j = i; j < num_rows; j += kTileRows) {
      const PanelRows columns(panel, stride, j);
      const int64_t num_columns = std::min(kTileRows, num_rows - j);
      const int64_t pair = kGramLanes * (DiagonalIndex(i, num_rows) + j - i);
      const auto accumulate = num_columns == 1   ? &AccumulatePairs<1>
                              : num_columns == 2 ? &AccumulatePairs<2>
                              : num_columns == 3 ? &AccumulatePairs<3>
                                                 : &AccumulatePairs<4>;
      accumulate(panel + i * stride, columns.at, num_elements,
                 hi_lanes + pair, lo_lanes + pair);
    }
  }
}

// Converts elements to double, filled up with zeros to whole groups of 8.
template <class Element>
HWY_NOINLINE void ConvertRow(const typename Element::Storage* from,
                             int64_t num_elements, double* to) {
  const LaneTag d;
  constexpr int64_t kVectorLanes = hn::MaxLanes(LaneTag());
  int64_t k = 0;
  for (; k + kVectorLanes <= num_elements; k += kVectorLanes) {
    hn::StoreU(LoadDouble(d, Element(), from + k), d, to + k);
  }
  for (; k < num_elements; ++k) to[k] = Element::ToDouble(from[k]);
  for (; k % kGramLanes != 0; ++k) to[k] = 0.0;
}

// Elements [begin, end) of all rows, by way of a panel.
template <class Element>
void AccumulateByPanel(const GramBlock& block, int64_t begin, int64_t end,
                       const GramScratch& scratch) {
  using Storage = typename Element::Storage;
  const int64_t stride = PanelElements(block.num_rows);
  for (int64_t k = begin; k < end; k += stride) {
    const int64_t num_elements = std::min(stride, end - k);
    for (int64_t r = 0; r < block.num_rows; ++r) {
      ConvertRow<Element>(reinterpret_cast<const Storage*>(block.rows[r]) + k,
                          num_elements, scratch.panel + r * stride);
    }
    const int64_t num_filled =
        (num_elements + kGramLanes - 1) / kGramLanes * kGramLanes;
    if (block.lo == nullptr) {
      AccumulatePanel(scratch.panel, stride, block.num_rows, num_filled,
                      scratch.hi_lanes);
    } else {
      AccumulatePanelPairs(scratch.panel, stride, block.num_rows, num_filled,
                           scratch.hi_lanes, scratch.lo_lanes);
    }
  }
}

template <class Element>
void AccumulateBlock(const GramBlock& block, const GramScratch& scratch) {
  using Storage = typename Element::Storage;
  int64_t num_done = 0;
  if (block.num_rows <= kTileRows && block.lo == nullptr) {
    const Storage* rows[kTileRows] = {};
    for (int64_t r = 0; r < block.num_rows; ++r) {
      rows[r] = reinterpret_cast<const Storage*>(block.rows[r]);
    }
    num_done = block.num_elements / kGramLanes * kGramLanes;
    const LanePointers lanes(scratch.hi_lanes, block.num_rows, 0, 0);
    Triangle<Element>(rows, block.num_rows, num_done, lanes.at);
  }
  AccumulateByPanel<Element>(block, num_done, block.num_elements, scratch);
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
    quarter[l] = PairAdd(DoublePair{hi[l], lo[l]},
                         DoublePair{hi[l + 4], lo[l + 4]});
  }
  return PairAdd(PairAdd(quarter[0], quarter[2]),
                 PairAdd(quarter[1], quarter[3]));
}

}  // namespace

int64_t GramScratchDoubles(int64_t num_rows) {
  return 2 * kGramLanes * PackedGramSize(num_rows) +
         (num_rows + kTileRows) * PanelElements(num_rows);
}

void ComputeGramBlock(const GramBlock& block) {
  const int64_t num_pairs = PackedGramSize(block.num_rows);
  GramScratch scratch;
  scratch.hi_lanes = block.scratch;
  scratch.lo_lanes = scratch.hi_lanes + kGramLanes * num_pairs;
  scratch.panel = scratch.lo_lanes + kGramLanes * num_pairs;
  std::fill(scratch.hi_lanes, scratch.panel, 0.0);
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
