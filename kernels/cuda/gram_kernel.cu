// The Gram matrix G = R R^T of more than 8 rows, on the fp64 tensor cores; of
// fewer: gram_few_rows.cu.
//
// What is computed: for each chunk (16 Ki elements of a range, kernel_args.h)
// and each pair of rows i <= j the sum over k of row_i[k] row_j[k], in double.
// SumsKernel (gram_pairs.cu) adds the chunks of a range, in order.
//
// What a tile is: 8 rows, what one tensor core instruction takes. 4 tiles are a
// panel: 32 rows, whose 10 pairs of tiles one warp can keep in registers, so
// that up to 32 rows are read from memory once.
//
//   kernel           called by             a block of 128 threads does
//   TriangleKernel   LaunchGram            one chunk of one panel with itself
//   RectangleKernel  LaunchGram, P > 32    one chunk of a panel with a later
//
// The 4 warps of a block take turns along the chunk's elements, each with a
// ring of asynchronous copies (TileRing; rectangles, whose two panels
// leave no room for whole lines: row_ring.cuh), and leave their sums in shared
// memory where the ring was. The block's threads add them up in a fixed order;
// the result is in GramLaunch::partial when the kernel has ended. Which lane
// does what is in gram_schedule.h; determinism and errors: gram_kernel.h.
#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/gram_kernel.h"
#include "kernels/cuda/gram_schedule.h"
#include "kernels/cuda/load_elements.cuh"
#include "kernels/cuda/row_ring.cuh"

namespace agg::cuda {

// ----------------------------------------------------------------------------
// What a lane does with the elements that it has loaded: multiplies them into
// its entries of the tile pairs' C, and leaves those in shared memory. The
// kernels below say who loads what.
//
// The products themselves are in device_ops.cuh. All pairs go through the tall
// ones, whatever the panel, so that equal rows have equal entries.

constexpr int kEntries = kTileRows * kTileRows;  // of a tile pair's C
constexpr int kRectanglePairs = kMaxTiles * kMaxTiles;

// All pairs of the tiles' columns of 4 elements.
template <int kTiles, int kPairs>
__device__ __forceinline__ void MultiplyColumns(const double (&a)[kTiles],
                                                double (&c)[kPairs][2]) {
#pragma unroll
  for (int index = 0; index < NumTallProducts(kTiles); ++index) {
    const TallProduct t = TallProductOf(kTiles, index);
    double(&of_first)[2] = c[TilePair(t.first, t.column)];
    if (t.second < 0) {
      MultiplyHalfTall(a[t.first], a[t.column], of_first);
    } else {
      MultiplyTallTiles(a[t.first], a[t.second], a[t.column], of_first,
                        c[TilePair(t.second, t.column)]);
    }
  }
}

template <class Element, int kTiles>
__device__ __forceinline__ void MultiplyTriangle(
    const Packed (&rows)[kTiles], double (&c)[kTiles * (kTiles + 1) / 2][2]) {
#pragma unroll
  for (int e = 0; e < Element::kPerLoad; ++e) {
    double a[kTiles];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) a[t] = Element::ToFloat(rows[t], e);
    MultiplyColumns(a, c);
  }
}

// All pairs of a tile of the first kMaxTiles with one of the others.
template <class Element>
__device__ __forceinline__ void MultiplyRectangle(
    const Packed (&rows)[2 * kMaxTiles], double (&c)[kRectanglePairs][2]) {
#pragma unroll
  for (int e = 0; e < Element::kPerLoad; ++e) {
    double column[kMaxTiles];
#pragma unroll
    for (int j = 0; j < kMaxTiles; ++j) {
      column[j] = Element::ToFloat(rows[kMaxTiles + j], e);
    }
#pragma unroll
    for (int i = 0; i < kMaxTiles; i += 2) {
      const double first = Element::ToFloat(rows[i], e);
      const double second = Element::ToFloat(rows[i + 1], e);
#pragma unroll
      for (int j = 0; j < kMaxTiles; ++j) {
        MultiplyTallTiles(first, second, column[j], c[i * kMaxTiles + j],
                          c[(i + 1) * kMaxTiles + j]);
      }
    }
  }
}

// Leaves the lane's entries of one C in shared memory.
__device__ __forceinline__ void StoreEntries(const double (&c)[2], int lane,
                                             bool transposed,
                                             double (&shared)[kEntries]) {
#pragma unroll
  for (int v = 0; v < 2; ++v) {
    const int m = lane / kQuad;
    const int n = lane % kQuad * 2 + v;
    shared[transposed ? TileEntry(n, m) : TileEntry(m, n)] = c[v];
  }
}

template <int kTiles, int kPairs>
__device__ __forceinline__ void StoreTriangle(
    const double (&c)[kPairs][2], int lane,
    double (&shared)[kPairs][kEntries]) {
#pragma unroll
  for (int index = 0; index < NumTallProducts(kTiles); ++index) {
    const TallProduct t = TallProductOf(kTiles, index);
    const int pair = TilePair(t.first, t.column);
    StoreEntries(c[pair], lane, t.first > t.column, shared[pair]);
    if (t.second < 0) continue;
    const int other = TilePair(t.second, t.column);
    StoreEntries(c[other], lane, t.second > t.column, shared[other]);
  }
}

// ----------------------------------------------------------------------------
// How a warp of the tensor cores' Gram reads a panel of rows: whole lines of
// memory, by way of a ring in shared memory.
//
// Four lanes share a row when they multiply, and have 64 bytes of it at a time.
// Copied so, 8 rows at once, half a line each, an H100 gave 70 to 76% of its
// copy bandwidth; lines are copied whole, by 8 lanes each, and what a lane
// multiplies was copied by others. So a step takes a barrier of the warp, which
// also says that all lanes have read the slot that is filled next. Where a
// line's pieces lie is in gram_schedule.h: neither copies nor reads meet in a
// bank.

// A warp's ring, in shared memory.
template <int kTiles>
struct TileSlots {
  uint4 slots[TileRingSteps(kTiles)][kTiles][kTileRows * kLineLanes];
};

// One lane's part of its warp's steps through a chunk of up to kTiles tiles.
template <int kTiles>
class TileRing {
 public:
  // Number of rows of which a lane copies pieces.
  static constexpr int kCopiedRows = kTiles * kLinesPerLane;

  // `rows`: those of CopiedRow, at the chunk's begin, aligned to 16 bytes;
  // `num_bytes`: of the chunk in each. Starts to copy. All lanes of the warp
  // make the same calls.
  __device__ __forceinline__ TileRing(const char* const (&rows)[kCopiedRows],
                                      int num_bytes, int warp, int lane,
                                      TileSlots<kTiles>* ring)
      : slots_(ring->slots), lane_(lane), left_(num_bytes - warp * kLineBytes) {
#pragma unroll
    for (int r = 0; r < kCopiedRows; ++r) {
      rows_[r] = rows[r] + warp * kLineBytes + lane % kLineLanes * kLoadBytes;
    }
#pragma unroll
    for (int step = 0; step < kSteps - 1; ++step) Start(step, step);
  }

  // Waits for the warp's next step. False: there is none.
  __device__ __forceinline__ bool Next() {
    if (left_ <= 0) return false;
    WaitForCopies<kSteps - 2>();
    JoinWarp();
    // The slot that was read last.
    Start(kSteps - 1, slot_ == 0 ? kSteps - 1 : slot_ - 1);
    return true;
  }

  // The lane's 16 bytes of each tile in half a line; zeros beyond the chunk's
  // end. REQUIRES: the last Next() was true.
  __device__ __forceinline__ void Read(int half,
                                       Packed (&loads)[kTiles]) const {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const uint4 v = slots_[slot_][t][LineSlot(LaneRow(lane_),
                                                half * kQuad + lane_ % kQuad)];
      loads[t] = Packed{{v.x, v.y, v.z, v.w}};
    }
  }

  // To the next step, when all of this one was read.
  __device__ __forceinline__ void Advance() {
#pragma unroll
    for (int r = 0; r < kCopiedRows; ++r) rows_[r] += kStride;
    slot_ = slot_ == kSteps - 1 ? 0 : slot_ + 1;
    left_ -= kStride;
  }

 private:
  static constexpr int kSteps = TileRingSteps(kTiles);
  static constexpr int kStride = kGramWarps * kLineBytes;

  // Copies what comes `ahead` steps after the next one to a slot: an empty
  // group if there is none, so that their number tells which step has arrived.
  __device__ __forceinline__ void Start(int ahead, int slot) {
    const int left = left_ - ahead * kStride;
    if (left >= kLineBytes) {
#pragma unroll
      for (int r = 0; r < kCopiedRows; ++r) {
        CopyAsync(To(slot, r), rows_[r] + ahead * kStride);
      }
    } else if (left > 0) {
      const int of_lane = left - lane_ % kLineLanes * kLoadBytes;
#pragma unroll
      for (int r = 0; r < kCopiedRows; ++r) {
        CopySomeAsync(To(slot, r), rows_[r] + ahead * kStride, of_lane);
      }
    }
    CommitCopies();
  }

  // Where the lane's piece of its row number r goes.
  __device__ __forceinline__ SharedAt To(int slot, int r) const {
    return SharedAtOf(&slots_[slot][r / kLinesPerLane][LineSlot(
        CopiedRow(lane_, r % kLinesPerLane), lane_ % kLineLanes)]);
  }

  uint4 (&slots_)[kSteps][kTiles][kTileRows * kLineLanes];
  const int lane_;
  const char* rows_[kCopiedRows];  // the lane's, at the step that is read next
  int left_;      // bytes of a row from there to the chunk's end
  int slot_ = 0;  // of that step
};

namespace {

constexpr int kThreads = kGramWarps * kWarpLanes;

// ----------------------------------------------------------------------------
// Device functions

// Where the sums of a chunk go.
__device__ __forceinline__ double* PartialOf(const GramLaunch& p,
                                             int64_t chunk_index) {
  return p.partial +
         chunk_index * PackedPair(p.num_rows, p.num_rows, p.num_rows);
}

// What a warp has in shared memory: its ring, then its sums.
template <class Ring, int kPairs>
union WarpMemory {
  Ring ring;
  double entries[kPairs][kEntries];
};
template <int kTiles>
using TriangleMemory = WarpMemory<TileSlots<kTiles>, kTiles*(kTiles + 1) / 2>;
using RectangleMemory = WarpMemory<RingSlots<2 * kMaxTiles>, kRectanglePairs>;

// The lane's row of each of kTiles tiles from `first_row` on, at the chunk's
// begin.
template <class Element, int kTiles>
__device__ __forceinline__ void FindRows(const GramLaunch& p,
                                         const Chunk& chunk, int first_row,
                                         int lane, const char** to) {
  const void* const* const rows = ArrayOf(p.args, p.rows);
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    const int row =
        ExistingRow(first_row + t * kTileRows + LaneRow(lane), p.num_rows);
    to[t] = static_cast<const char*>(rows[row]) + BytesOf<Element>(chunk.begin);
  }
}

// As FindRows, of the rows of which the lane copies pieces.
template <class Element, int kTiles>
__device__ __forceinline__ void FindCopiedRows(const GramLaunch& p,
                                               const Chunk& chunk,
                                               int first_row, int lane,
                                               const char** to) {
  const void* const* const rows = ArrayOf(p.args, p.rows);
#pragma unroll
  for (int r = 0; r < kTiles * kLinesPerLane; ++r) {
    const int row = ExistingRow(first_row + r / kLinesPerLane * kTileRows +
                                    CopiedRow(lane, r % kLinesPerLane),
                                p.num_rows);
    to[r] = static_cast<const char*>(rows[row]) + BytesOf<Element>(chunk.begin);
  }
}

// Adds up what the warps have left in shared memory: by the whole block.
template <int kTiles>
__device__ __forceinline__ void AddTriangles(
    const GramLaunch& p, int first_row,
    const TriangleMemory<kTiles> (&shared)[kGramWarps], double* partial) {
  const int num_rows = min(p.num_rows - first_row, kTiles * kTileRows);
  for (int pair = static_cast<int>(threadIdx.x); pair < num_rows * num_rows;
       pair += kThreads) {
    const int i = pair / num_rows;
    const int j = pair % num_rows;
    if (i > j) continue;
    double sum = 0.0;
    for (int w = 0; w < kGramWarps; ++w) {
      sum += shared[w].entries[TilePair(i / kTileRows, j / kTileRows)]
                              [TileEntry(i % kTileRows, j % kTileRows)];
    }
    partial[PackedPair(first_row + i, first_row + j, p.num_rows)] = sum;
  }
}

// As AddTriangles, for a panel with another.
__device__ __forceinline__ void AddRectangles(
    const GramLaunch& p, int first_i, int first_j,
    const RectangleMemory (&shared)[kGramWarps], double* partial) {
  const int num_columns = min(p.num_rows - first_j, kPanelRows);
  for (int pair = static_cast<int>(threadIdx.x);
       pair < kPanelRows * num_columns; pair += kThreads) {
    const int i = pair / num_columns;
    const int j = pair % num_columns;
    double sum = 0.0;
    for (int w = 0; w < kGramWarps; ++w) {
      sum += shared[w].entries[i / kTileRows * kMaxTiles + j / kTileRows]
                              [TileEntry(i % kTileRows, j % kTileRows)];
    }
    partial[PackedPair(first_i + i, first_j + j, p.num_rows)] = sum;
  }
}

// ----------------------------------------------------------------------------
// Kernels

// A panel with itself: up to kTiles * 8 rows. Block (chunk, panel). Without the
// 3 blocks per SM, ptxas saves registers by spilling some (sm_90).
template <class Element, int kTiles>
__global__ void __launch_bounds__(kThreads, 3)
    TriangleKernel(const GramLaunch __grid_constant__ p, int num_panels) {
  constexpr int kPairs = kTiles * (kTiles + 1) / 2;
  auto& shared = BlockShared<TriangleMemory<kTiles>[kGramWarps]>();
  const int warp = static_cast<int>(threadIdx.x) / kWarpLanes;
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
  const int64_t chunk_index = blockIdx.x / num_panels;
  const int first_row = static_cast<int>(blockIdx.x % num_panels) * kPanelRows;
  const Chunk chunk = ChunkAt(p, chunk_index);
  const char* rows[TileRing<kTiles>::kCopiedRows];
  FindCopiedRows<Element, kTiles>(p, chunk, first_row, lane, rows);
  TileRing<kTiles> ring(rows, BytesOf<Element>(chunk.num_elements), warp, lane,
                        &shared[warp].ring);

  double c[kPairs][2] = {};  // the lane's entries of each tile pair's C
  Packed loads[kTiles];
  for (; ring.Next(); ring.Advance()) {
#pragma unroll 1  // two at once take more registers than there are (sm_90)
    for (int half = 0; half < 2; ++half) {
      ring.Read(half, loads);
      MultiplyTriangle<Element>(loads, c);
    }
  }
  JoinWarp();  // all lanes have read the ring
  StoreTriangle<kTiles>(c, lane, shared[warp].entries);
  __syncthreads();
  AddTriangles(p, first_row, shared, PartialOf(p, chunk_index));
}

// Two panels, i < j. Block (chunk, pair of panels).
template <class Element>
__global__ void __launch_bounds__(kThreads)
    RectangleKernel(const GramLaunch __grid_constant__ p, int num_pairs) {
  constexpr int kTiles = 2 * kMaxTiles;
  auto& shared = BlockShared<RectangleMemory[kGramWarps]>();
  const int warp = static_cast<int>(threadIdx.x) / kWarpLanes;
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
  const int64_t chunk_index = blockIdx.x / num_pairs;
  int panel_i, panel_j;
  OffDiagonalPair(static_cast<int>(blockIdx.x % num_pairs), &panel_i, &panel_j);
  const int first_i = panel_i * kPanelRows;
  const int first_j = panel_j * kPanelRows;
  const Chunk chunk = ChunkAt(p, chunk_index);
  const char* rows[kTiles];
  FindRows<Element, kMaxTiles>(p, chunk, first_i, lane, rows);
  FindRows<Element, kMaxTiles>(p, chunk, first_j, lane, rows + kMaxTiles);
  RowRing<kTiles, kQuad> ring(rows, BytesOf<Element>(chunk.num_elements), warp,
                              lane, &shared[warp].ring);

  double c[kRectanglePairs][2] = {};
  Packed loads[kTiles];
  while (ring.Next(loads)) MultiplyRectangle<Element>(loads, c);
  JoinWarp();
#pragma unroll
  for (int pair = 0; pair < kRectanglePairs; ++pair) {
    StoreEntries(c[pair], lane, false, shared[warp].entries[pair]);
  }
  __syncthreads();
  AddRectangles(p, first_i, first_j, shared, PartialOf(p, chunk_index));
}

// ----------------------------------------------------------------------------
// Launchers

template <class Element>
auto TriangleKernelOf(int num_tiles) {
  return num_tiles == 2   ? &TriangleKernel<Element, 2>
         : num_tiles == 3 ? &TriangleKernel<Element, 3>
                          : &TriangleKernel<Element, 4>;
}

// Of a panel, of all rows or of the first ones.
int NumTiles(int num_rows) {
  return num_rows > kPanelRows
             ? kMaxTiles
             : static_cast<int>(CeilDivide(num_rows, kTileRows));
}

template <class Element>
cudaError_t Launch(const GramLaunch& p, cudaStream_t stream) {
  const auto num_panels = static_cast<int>(CeilDivide(p.num_rows, kPanelRows));
  const cudaError_t error =
      LaunchKernel(TriangleKernelOf<Element>(NumTiles(p.num_rows)),
                   static_cast<unsigned>(p.num_chunks * num_panels), kThreads,
                   stream, p, num_panels);
  if (error != cudaSuccess || num_panels == 1) return error;
  const int num_pairs = num_panels * (num_panels - 1) / 2;
  return LaunchKernel(&RectangleKernel<Element>,
                      static_cast<unsigned>(p.num_chunks * num_pairs), kThreads,
                      stream, p, num_pairs);
}

}  // namespace

cudaError_t LaunchGram(const GramLaunch& launch, cudaStream_t stream) {
  if (launch.num_chunks == 0) return cudaSuccess;
  if (launch.num_rows <= kFewRows) return LaunchGramFewRows(launch, stream);
  return WithElement(launch.dtype, [&](auto element) {
    return Launch<decltype(element)>(launch, stream);
  });
}

cudaError_t LoadGram() {
  const cudaError_t error = LoadGramFewRows();
  if (error != cudaSuccess) return error;
  return WithEachElement([](auto element) {
    using Element = decltype(element);
    cudaError_t error = LoadRingKernel(&RectangleKernel<Element>);
    for (int tiles = 2; tiles <= kMaxTiles && error == cudaSuccess; ++tiles) {
      error = LoadRingKernel(TriangleKernelOf<Element>(tiles));
    }
    return error;
  });
}

cudaError_t FindGramUse(int num_rows, int dtype, KernelUse* use) {
  if (num_rows <= kFewRows) return FindFewRowsUse(num_rows, dtype, use);
  return WithElement(dtype, [&](auto element) {
    using Element = decltype(element);
    if (num_rows > kPanelRows) {
      return FindUse(&RectangleKernel<Element>, kThreads, use);
    }
    return FindUse(TriangleKernelOf<Element>(NumTiles(num_rows)), kThreads,
                   use);
  });
}

}  // namespace agg::cuda
