// The Gram matrix G = R R^T of P rows, on the fp64 tensor cores.
//
// What is computed: for each chunk (16 Ki elements of a range, chunk.h) and
// each pair of rows i <= j the sum over k of row_i[k] row_j[k], in double.
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
// The 4 warps of a block take turns along the chunk's elements and leave their
// sums in shared memory, where the block's threads add them up in a fixed
// order; the result is in GramLaunch::partial when the kernel has ended. Which
// lane does what is in gram_schedule.h; determinism and errors: gram_kernel.h.
#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/gram_kernel.h"
#include "kernels/cuda/gram_products.cuh"
#include "kernels/cuda/gram_schedule.h"
#include "kernels/cuda/load_elements.cuh"
#include "kernels/cuda/panel_reader.cuh"

namespace agg::cuda {
namespace {

constexpr int kWarpLanes = 32;
constexpr int kThreads = kGramWarps * kWarpLanes;

// ----------------------------------------------------------------------------
// Device functions

// Where the sums of a chunk go.
__device__ __forceinline__ double* PartialOf(const GramLaunch& p,
                                             int64_t chunk_index) {
  return p.partial +
         chunk_index * PackedPair(p.num_rows, p.num_rows, p.num_rows);
}

// One warp's steps of a chunk, into the lane's entries of each tile pair's C.
// While it multiplies what it has loaded, its next loads are on their way.
template <class Element, int kTiles, int kUnroll, int kPairs>
__device__ __forceinline__ void SumTriangle(
    const PanelReader<Element, kTiles, kUnroll>& reader, int num_elements,
    int warp, double (&c)[kPairs][2]) {
  const int num_steps = num_elements / reader.step_elements();
  Packed current[kUnroll][kTiles];
  if (warp < num_steps) reader.Load(warp, current);
  for (int step = warp; step < num_steps; step += kGramWarps) {
    Packed next[kUnroll][kTiles];
    if (step + kGramWarps < num_steps) reader.Load(step + kGramWarps, next);
    MultiplyTriangle<Element, kTiles, kUnroll>(current, c);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) current[u][t] = next[u][t];
    }
  }
  // The end of the chunk goes to the warp whose turn it is.
  if (warp == num_steps % kGramWarps &&
      num_steps * reader.step_elements() < num_elements) {
    reader.LoadTail(num_steps, num_elements, current);
    MultiplyTriangle<Element, kTiles, kUnroll>(current, c);
  }
}

// Adds up what the warps have left in shared memory: by the whole block.
template <int kTiles, int kPairs>
__device__ __forceinline__ void AddTriangles(
    const GramLaunch& p, int first_row,
    const double (&shared)[kGramWarps][kPairs][kEntries], double* partial) {
  const int num_rows = min(p.num_rows - first_row, kTiles * kTileRows);
  const int group_rows = kTiles == 1 ? GroupRows(p.num_rows) : kTileRows;
  for (int pair = static_cast<int>(threadIdx.x); pair < num_rows * num_rows;
       pair += kThreads) {
    const int i = pair / num_rows;
    const int j = pair % num_rows;
    if (i > j) continue;
    double sum = 0.0;
    // With fewer than 8 rows a tile holds several groups of the same rows.
    for (int w = 0; w < kGramWarps; ++w) {
      for (int group = 0; group < kTileRows; group += group_rows) {
        sum += shared[w][TilePair(i / kTileRows, j / kTileRows)]
                     [TileEntry(group + i % kTileRows, group + j % kTileRows)];
      }
    }
    partial[PackedPair(first_row + i, first_row + j, p.num_rows)] = sum;
  }
}

// As SumTriangle, for a panel with another.
template <class Element>
__device__ __forceinline__ void SumRectangle(
    const PanelReader<Element, kMaxTiles, 1>& reader_i,
    const PanelReader<Element, kMaxTiles, 1>& reader_j, int num_elements,
    int warp, double (&c)[kRectanglePairs][2]) {
  const int step_elements = reader_i.step_elements();
  const int num_steps =
      static_cast<int>(CeilDivide(num_elements, step_elements));
  for (int step = warp; step < num_steps; step += kGramWarps) {
    Packed a[1][kMaxTiles], b[1][kMaxTiles];
    if ((step + 1) * step_elements <= num_elements) {
      reader_i.Load(step, a);
      reader_j.Load(step, b);
    } else {
      reader_i.LoadTail(step, num_elements, a);
      reader_j.LoadTail(step, num_elements, b);
    }
    MultiplyRectangle<Element>(a[0], b[0], c);
  }
}

// As AddTriangles, for a panel with another.
__device__ __forceinline__ void AddRectangles(
    const GramLaunch& p, int first_i, int first_j,
    const double (&shared)[kGramWarps][kRectanglePairs][kEntries],
    double* partial) {
  const int num_columns = min(p.num_rows - first_j, kPanelRows);
  for (int pair = static_cast<int>(threadIdx.x);
       pair < kPanelRows * num_columns; pair += kThreads) {
    const int i = pair / num_columns;
    const int j = pair % num_columns;
    double sum = 0.0;
    for (int w = 0; w < kGramWarps; ++w) {
      sum += shared[w][i / kTileRows * kMaxTiles + j / kTileRows]
                   [TileEntry(i % kTileRows, j % kTileRows)];
    }
    partial[PackedPair(first_i + i, first_j + j, p.num_rows)] = sum;
  }
}

// ----------------------------------------------------------------------------
// Kernels

// A panel with itself: up to kTiles * 8 rows. Block (chunk, panel).
template <class Element, int kTiles>
__global__ void __launch_bounds__(kThreads)
    TriangleKernel(const GramLaunch __grid_constant__ p, int num_panels) {
  constexpr int kUnroll = GramUnroll(kTiles);
  constexpr int kPairs = kTiles * (kTiles + 1) / 2;
  auto& shared = BlockShared<double[kGramWarps][kPairs][kEntries]>();
  const int warp = static_cast<int>(threadIdx.x) / kWarpLanes;
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
  const int64_t chunk_index = blockIdx.x / num_panels;
  const int first_row = static_cast<int>(blockIdx.x % num_panels) * kPanelRows;
  const Chunk chunk = ChunkAt(p, chunk_index);
  const PanelReader<Element, kTiles, kUnroll> reader(p, chunk, first_row, lane);

  double c[kPairs][2] = {};  // the lane's entries of each tile pair's C
  SumTriangle(reader, chunk.num_elements, warp, c);
  StoreTriangle<kTiles>(c, lane, shared[warp]);
  __syncthreads();
  AddTriangles<kTiles>(p, first_row, shared, PartialOf(p, chunk_index));
}

// Two panels, i < j. Block (chunk, pair of panels).
template <class Element>
__global__ void __launch_bounds__(kThreads)
    RectangleKernel(const GramLaunch __grid_constant__ p, int num_pairs) {
  auto& shared = BlockShared<double[kGramWarps][kRectanglePairs][kEntries]>();
  const int warp = static_cast<int>(threadIdx.x) / kWarpLanes;
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
  const int64_t chunk_index = blockIdx.x / num_pairs;
  int panel_i, panel_j;
  OffDiagonalPair(static_cast<int>(blockIdx.x % num_pairs), &panel_i, &panel_j);
  const int first_i = panel_i * kPanelRows;
  const int first_j = panel_j * kPanelRows;
  const Chunk chunk = ChunkAt(p, chunk_index);
  const PanelReader<Element, kMaxTiles, 1> reader_i(p, chunk, first_i, lane);
  const PanelReader<Element, kMaxTiles, 1> reader_j(p, chunk, first_j, lane);

  double c[kRectanglePairs][2] = {};
  SumRectangle(reader_i, reader_j, chunk.num_elements, warp, c);
#pragma unroll
  for (int pair = 0; pair < kRectanglePairs; ++pair) {
    StoreEntries(c[pair], lane, false, shared[warp][pair]);
  }
  __syncthreads();
  AddRectangles(p, first_i, first_j, shared, PartialOf(p, chunk_index));
}

// ----------------------------------------------------------------------------
// Launchers

template <class Element>
auto TriangleKernelOf(int num_tiles) {
  return num_tiles == 1   ? &TriangleKernel<Element, 1>
         : num_tiles == 2 ? &TriangleKernel<Element, 2>
         : num_tiles == 3 ? &TriangleKernel<Element, 3>
                          : &TriangleKernel<Element, 4>;
}

template <class Element>
cudaError_t Launch(const GramLaunch& p, cudaStream_t stream) {
  const auto num_panels = static_cast<int>(CeilDivide(p.num_rows, kPanelRows));
  const int num_tiles =
      num_panels > 1 ? kMaxTiles
                     : static_cast<int>(CeilDivide(p.num_rows, kTileRows));
  const cudaError_t error =
      LaunchKernel(TriangleKernelOf<Element>(num_tiles),
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
  return WithElement(launch.dtype, [&](auto element) {
    return Launch<decltype(element)>(launch, stream);
  });
}

cudaError_t LoadGram() {
  return WithEachElement([](auto element) {
    using Element = decltype(element);
    cudaError_t error = LoadKernel(&RectangleKernel<Element>);
    for (int tiles = 1; tiles <= kMaxTiles && error == cudaSuccess; ++tiles) {
      error = LoadKernel(TriangleKernelOf<Element>(tiles));
    }
    return error;
  });
}

}  // namespace agg::cuda
