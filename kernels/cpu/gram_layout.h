// Where the Gram kernel keeps a block's data: panels of converted rows, and the
// lanes of the sums.
#ifndef AGG_KERNELS_CPU_GRAM_LAYOUT_H_
#define AGG_KERNELS_CPU_GRAM_LAYOUT_H_

#include <algorithm>
#include <cstdint>

namespace agg {

// The virtual layout of sums is 8 lanes of doubles, whatever the SIMD target.
// Lane l accumulates the elements l, l + 8, l + 16 .. of a block in order (a
// last, incomplete group of 8 is filled up with zeros), and the lanes are
// added as ((0+4)+(2+6))+((1+5)+(3+7)).
inline constexpr int64_t kGramLanes = 8;

inline double SumOfGramLanes(const double* lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// Rows of a tile. Up to as many rows are read in place; more are converted to
// double first, a panel of all rows at a time, since each is used in several
// tiles.
inline constexpr int64_t kTileRows = 4;

// Doubles of a panel: 64 KiB for all rows. Measured at P = 8, 16, 32
// on a Zen 4: 24 KiB (inside the L1 cache) is 1, 6 and 12% slower, since a tile
// then spends more of its time on loading and storing its sums; 128 KiB is no
// faster. The 4 rows of a tile stay in the L1 cache.
inline constexpr int64_t kPanelDoubles = 8192;

// Elements per row of a panel. At most 1024, what 8 rows have; at least 32, so
// that a tile does more than load and store its sums.
inline int64_t PanelElements(int64_t num_rows) {
  const int64_t fitting = kPanelDoubles / num_rows / kGramLanes * kGramLanes;
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

#endif  // AGG_KERNELS_CPU_GRAM_LAYOUT_H_
