// Which lane of the Gram kernel reads which elements, and where a pair's sum
// ends up: index arithmetic, host and device, so that a test on the host can
// walk through it.
//
// A block's warps take turns along a chunk: kLoadBytes per lane of each row
// that the lane reads, with more than 8 rows twice, a line. With up to 8 rows
// all lanes of a warp share every row and multiply by themselves.
//
// With more, a warp multiplies with mma.m8n8k4.f64: lane L brings
// A[L / 4][L % 4] and B[L % 4][L / 4] and gets C[L / 4][2 * (L % 4) + {0, 1}]
// (PTX ISA, "mma.m8n8k4 with f64"). For A A^T both operands of a tile of 8 rows
// are the same registers, and which element a k stands for is free as long as
// all rows agree. So four lanes share a row of each tile, and each hands the
// elements of its 16 bytes to one mma after the other: no transposition.
//
// The products are "tall", of two tiles with one, which sm_90 has an
// instruction for (m16n8k4: the same lanes for rows 0..7 and 8..15). The pairs
// of 3 or 4 tiles are dealt out so that no half of one is wasted: as G is
// symmetric, a pair of tiles may be computed either way round. Rows beyond the
// last one of a tile repeat another row; their products are never stored.
#ifndef AGG_KERNELS_CUDA_GRAM_SCHEDULE_H_
#define AGG_KERNELS_CUDA_GRAM_SCHEDULE_H_

#include <stdint.h>

#include <cstdint>

#include "kernels/narrow_float.h"

namespace agg::cuda {

inline constexpr int kTileRows = 8;    // of the mma
inline constexpr int kPanelRows = 32;  // rows that one warp multiplies
inline constexpr int kMaxTiles = kPanelRows / kTileRows;
inline constexpr int kWarpLanes = 32;
inline constexpr int kGramWarps = 4;   // per thread block
inline constexpr int kQuad = 4;        // lanes that share a row: k of the mma
inline constexpr int kLoadBytes = 16;  // per lane, row and step
// A line of memory, which is fetched whole: what 8 lanes copy of a row.
inline constexpr int kLineBytes = 128;
inline constexpr int kLineLanes = kLineBytes / kLoadBytes;
// Rows of a tile of which a lane copies a piece.
inline constexpr int kLinesPerLane = kTileRows * kLineLanes / kWarpLanes;

// Bytes of a row that a step has: `row_lanes` lanes share the row.
AGG_HOST_DEVICE constexpr int StepBytes(int row_lanes) {
  return row_lanes * kLoadBytes;
}

// Where, within them, a lane's are.
AGG_HOST_DEVICE constexpr int LaneByte(int lane, int row_lanes) {
  return lane % row_lanes * kLoadBytes;
}

// The row within the tile that a lane loads.
AGG_HOST_DEVICE int LaneRow(int lane) { return lane / kQuad; }

// Steps that a warp's ring holds, one of which is being multiplied: what brings
// 64 KiB and more on their way per SM of sm_90 with the registers that the
// kernels take there. Four warps' rings take 48 KiB at most, which is all that
// a kernel has unless it asks for more.
AGG_HOST_DEVICE constexpr int RingSteps(int num_loads) {
  return num_loads == 1 ? 8 : num_loads <= 4 ? 4 : 3;
}

// Steps of a ring of whole lines (TileRing), in as much memory.
AGG_HOST_DEVICE constexpr int TileRingSteps(int num_tiles) {
  return num_tiles == 2 ? 4 : 3;
}

// The row within a tile of which a lane copies a piece of a line: its first or
// second.
AGG_HOST_DEVICE int CopiedRow(int lane, int index) {
  return index * (kWarpLanes / kLineLanes) + lane / kLineLanes;
}

// Where piece `piece` of the line of row `row` of a tile lies in shared memory,
// in units of kLoadBytes. Eight lanes that copy a line write all banks, and so
// read those that multiply: two rows' halves of a line, whose halves are
// exchanged in every second row.
AGG_HOST_DEVICE int LineSlot(int row, int piece) {
  return row * kLineLanes + (piece ^ (row % 2 * (kLineLanes / 2)));
}

// Returns `row` of a panel, or, beyond the last row, one that exists (its
// tile's first, whose bytes the warp reads anyway, or the panel's first).
AGG_HOST_DEVICE int ExistingRow(int row, int num_rows) {
  if (row < num_rows) return row;
  const int first_of_tile = row / kTileRows * kTileRows;
  const int first_of_panel = row / kPanelRows * kPanelRows;
  return first_of_tile < num_rows ? first_of_tile : first_of_panel;
}

// Number of the pair of tiles i and j, in either order: (0,0) (0,1) (1,1) ..
AGG_HOST_DEVICE constexpr int TilePair(int i, int j) {
  return i <= j ? j * (j + 1) / 2 + i : i * (i + 1) / 2 + j;
}

// Row tiles `first` and `second` times column tile `column`; second < 0: none.
// Where a row tile is behind the column tile, C is the transpose of the pair's.
struct TallProduct {
  int first;
  int second;
  int column;
};

// Products of a panel of 2, 3 or 4 tiles: each pair of tiles once.
AGG_HOST_DEVICE constexpr int NumTallProducts(int num_tiles) {
  return num_tiles == 4 ? 5 : num_tiles;
}
AGG_HOST_DEVICE constexpr TallProduct TallProductOf(int num_tiles, int index) {
  if (num_tiles == 4 && index == 3) return {2, 3, 0};
  if (num_tiles == 4 && index == 4) return {3, 1, 3};
  if (index < num_tiles - 1) return {index, index + 1, index};
  return {index, num_tiles == 3 ? 0 : -1, index};
}

// Position of entry (m, n) among the 64 of a tile pair's C.
AGG_HOST_DEVICE int TileEntry(int m, int n) { return m * kTileRows + n; }

// Packed upper triangle of kernels/backend.h. REQUIRES: i <= j.
AGG_HOST_DEVICE int64_t PackedPair(int64_t i, int64_t j, int64_t num_rows) {
  return i * num_rows - i * (i - 1) / 2 + (j - i);
}

AGG_HOST_DEVICE int64_t CeilDivide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Finds the pair of panels (or tiles) that task `index` of those with i < j is:
// (0,1) (0,2) (1,2) (0,3) ..
AGG_HOST_DEVICE void OffDiagonalPair(int index, int* i, int* j) {
  int column = 1;
  while (index >= column) index -= column++;
  *i = index;
  *j = column;
}

// Finds the pair that task `index` of those with i <= j is: (0,0) (0,1) (1,1)
// (0,2) ..
AGG_HOST_DEVICE void UpperPair(int index, int* i, int* j) {
  int column = 0;
  while (index > column) index -= ++column;
  *i = index;
  *j = column;
}

// Elements of a batch, which cuBLAS multiplies at once: the k of one matrix
// product.
inline constexpr int kBatchElements = 1024;

// How large a tile is for so many rows: num_batches batches side by side.
struct TileShape {
  int num_batches = 0;  // 0: so many rows do not fit
  int64_t row_stride() const {
    return static_cast<int64_t>(num_batches) * kBatchElements;
  }
};

// The most batches, up to 64, whose doubles and matrices each fit into
// `num_bytes`. Pure.
inline TileShape PlanTile(int64_t num_rows, int64_t num_bytes) {
  const int64_t batch_bytes = num_rows * kBatchElements * 8;
  const int64_t matrix_bytes = num_rows * num_rows * 8;
  const int64_t larger =
      batch_bytes > matrix_bytes ? batch_bytes : matrix_bytes;
  const int64_t fitting = num_bytes / larger;
  TileShape shape;
  shape.num_batches = static_cast<int>(fitting < 64 ? fitting : 64);
  return shape;
}

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_GRAM_SCHEDULE_H_
