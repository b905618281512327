// Weighted sum, optimizer step and publication of a chunk in one pass, or in
// two.
//
//   kernel         called by      threads        result is in
//   UpdateKernel   LaunchUpdate   256 per chunk  master, state, narrowed copy,
//                                                whether all is finite
//   CombineKernel  LaunchCombine  256 per chunk  combined
//   StepKernel     LaunchStep     256 per chunk  as of UpdateKernel
//   NormsKernel    LaunchNorms    256 per chunk  partial, 2 doubles per chunk
//   FillKernel     LaunchFill     1 per element  the array
//   NarrowKernel   LaunchNarrow   1 per element  the 16-bit array
//
// A thread takes 4 elements at a time, 16 bytes of float32: the widest load
// there is. Update is bound by memory, so everything happens in one pass: each
// row, the master and the state are read once and written once. What the
// results are worth: update_kernel.h.
#include "kernels/cuda/combine_rows.cuh"
#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/load_elements.cuh"
#include "kernels/cuda/update_elements.cuh"
#include "kernels/cuda/update_kernel.h"
#include "kernels/optimizer_table.h"
#include "kernels/step_constants.h"

namespace agg::cuda {
namespace {

constexpr int kWarpLanes = 32;
constexpr int kThreads = kCombineThreads;
constexpr int kWarps = kThreads / kWarpLanes;
constexpr int kPerBlock = kThreads * kPerThread;

// ----------------------------------------------------------------------------
// Device functions

// Squares summed up: of parameters, and of what the trust ratio sets against
// them.
struct NormSums {
  double parameters = 0.0;
  double updates = 0.0;

  __device__ __forceinline__ void Add(const NormSums& other) {
    parameters += other.parameters;
    updates += other.updates;
  }
};

// The block's sums, in thread 0; a tree of fixed shape.
__device__ __forceinline__ NormSums SumsOfBlock(NormSums sums,
                                                double (*shared)[2]) {
#pragma unroll
  for (int offset = kWarpLanes / 2; offset > 0; offset /= 2) {
    sums.Add({OfLaneBelow(sums.parameters, offset),
              OfLaneBelow(sums.updates, offset)});
  }
  if (threadIdx.x % kWarpLanes == 0) {
    shared[threadIdx.x / kWarpLanes][0] = sums.parameters;
    shared[threadIdx.x / kWarpLanes][1] = sums.updates;
  }
  __syncthreads();
  NormSums total;
  if (threadIdx.x == 0) {
    for (int w = 0; w < kWarps; ++w) total.Add({shared[w][0], shared[w][1]});
  }
  return total;
}

// ----------------------------------------------------------------------------
// Kernels

// Block per chunk.
template <class Element>
__global__ void __launch_bounds__(kThreads)
    UpdateKernel(const UpdateLaunch __grid_constant__ p) {
  Stage& stage = BlockShared<Stage>();
  const Chunk chunk = ChunkAt(p, blockIdx.x);
  const StepConstants constants = ArrayOf(p.args, p.constants)[chunk.slot];
  bool staged = false, finite = true;
  for (int base = 0; base < chunk.num_elements; base += kPerBlock) {
    const int offset = base + static_cast<int>(threadIdx.x) * kPerThread;
    const int left = chunk.num_elements - offset;
    const int64_t at = chunk.begin + offset;
    Four x = {};
    // On their way while the rows are summed up.
    if (p.formula.kind != OptimizerKind::kNone) LoadState(p, at, left, &x);
    Combine<Element>(p, chunk.slot, at, left, &stage, &staged, x.gradient);
    if (left <= 0) continue;
    finite &= StepAndStore(p, constants, at, left, &x);
  }
  TellFinite(p, finite);
}

// Block per chunk. Not asked for 4 blocks, ptxas makes room for a fifth one and
// spills (13.0, sm_90).
template <class Element>
__global__ void __launch_bounds__(kThreads, 4)
    CombineKernel(const UpdateLaunch __grid_constant__ p) {
  Stage& stage = BlockShared<Stage>();
  const Chunk chunk = ChunkAt(p, blockIdx.x);
  bool staged = false;
  for (int base = 0; base < chunk.num_elements; base += kPerBlock) {
    const int offset = base + static_cast<int>(threadIdx.x) * kPerThread;
    const int left = chunk.num_elements - offset;
    const int64_t at = chunk.begin + offset;
    float combined[kPerThread];
    Combine<Element>(p, chunk.slot, at, left, &stage, &staged, combined);
    if (left > 0) StoreFloats(combined, left, p.combined + at);
  }
}

// Block per chunk. The combined gradient may come over the bus: 16 bytes per
// thread, all threads' at once.
__global__ void __launch_bounds__(kThreads)
    StepKernel(const UpdateLaunch __grid_constant__ p) {
  const Chunk chunk = ChunkAt(p, blockIdx.x);
  const StepConstants constants = ArrayOf(p.args, p.constants)[chunk.slot];
  bool finite = true;
  for (int base = 0; base < chunk.num_elements; base += kPerBlock) {
    const int offset = base + static_cast<int>(threadIdx.x) * kPerThread;
    const int left = chunk.num_elements - offset;
    if (left <= 0) break;
    const int64_t at = chunk.begin + offset;
    Four x = {};
    LoadFloats(p.combined + at, left, x.gradient);
    if (p.formula.kind != OptimizerKind::kNone) LoadState(p, at, left, &x);
    finite &= StepAndStore(p, constants, at, left, &x);
  }
  TellFinite(p, finite);
}

// Block per chunk. Elements beyond the chunk's end are zeros and add nothing.
template <class Element>
__global__ void __launch_bounds__(kThreads)
    NormsKernel(const UpdateLaunch __grid_constant__ p, double* partial) {
  Stage& stage = BlockShared<Stage>();
  auto& shared = BlockShared<double[kWarps][2]>();
  const Chunk chunk = ChunkAt(p, blockIdx.x);
  const StepConstants constants = ArrayOf(p.args, p.constants)[chunk.slot];
  NormSums own;
  bool staged = false;
  for (int base = 0; base < chunk.num_elements; base += kPerBlock) {
    const int offset = base + static_cast<int>(threadIdx.x) * kPerThread;
    const int left = chunk.num_elements - offset;
    const int64_t at = chunk.begin + offset;
    Four x = {};
    LoadState(p, at, left, &x);
    Combine<Element>(p, chunk.slot, at, left, &stage, &staged, x.gradient);
    VisitFormula(p.formula, DirectFour{constants, &x});
#pragma unroll
    for (int e = 0; e < kPerThread; ++e) {
      if (e >= left) break;
      const double parameter = x.parameter[e];
      const double update = x.gradient[e];
      own.parameters = fma(parameter, parameter, own.parameters);
      own.updates = fma(update, update, own.updates);
    }
  }
  const NormSums sums = SumsOfBlock(own, shared);
  if (threadIdx.x == 0) {
    partial[2 * static_cast<int64_t>(blockIdx.x)] = sums.parameters;
    partial[2 * static_cast<int64_t>(blockIdx.x) + 1] = sums.updates;
  }
}

// One thread per element: these two run when a job is seeded.
__global__ void __launch_bounds__(kThreads)
    FillKernel(float* to, int64_t num_elements, float value) {
  const int64_t k = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (k < num_elements) to[k] = value;
}

__global__ void __launch_bounds__(kThreads)
    NarrowKernel(const float* from, int64_t num_elements, int dtype,
                 uint16_t* to) {
  const int64_t k = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (k < num_elements) to[k] = Narrow(from[k], dtype);
}

// ----------------------------------------------------------------------------
// Launchers

unsigned BlocksFor(int64_t num_elements) {
  return static_cast<unsigned>((num_elements + kThreads - 1) / kThreads);
}

}  // namespace

cudaError_t LaunchUpdate(const UpdateLaunch& launch, cudaStream_t stream) {
  if (launch.num_chunks == 0) return cudaSuccess;
  const auto grid = static_cast<unsigned>(launch.num_chunks);
  return WithRowElement(launch.dtype, [&](auto element) {
    return LaunchKernel(&UpdateKernel<decltype(element)>, grid, kThreads,
                        stream, launch);
  });
}

cudaError_t LaunchCombine(const UpdateLaunch& launch, cudaStream_t stream) {
  if (launch.num_chunks == 0) return cudaSuccess;
  const auto grid = static_cast<unsigned>(launch.num_chunks);
  return WithRowElement(launch.dtype, [&](auto element) {
    return LaunchKernel(&CombineKernel<decltype(element)>, grid, kThreads,
                        stream, launch);
  });
}

cudaError_t LaunchStep(const UpdateLaunch& launch, cudaStream_t stream) {
  if (launch.num_chunks == 0) return cudaSuccess;
  return LaunchKernel(&StepKernel, static_cast<unsigned>(launch.num_chunks),
                      kThreads, stream, launch);
}

cudaError_t LaunchNorms(const UpdateLaunch& launch, double* partial,
                        cudaStream_t stream) {
  if (launch.num_chunks == 0) return cudaSuccess;
  const auto grid = static_cast<unsigned>(launch.num_chunks);
  return WithRowElement(launch.dtype, [&](auto element) {
    return LaunchKernel(&NormsKernel<decltype(element)>, grid, kThreads, stream,
                        launch, partial);
  });
}

cudaError_t LaunchFill(float* to, int64_t num_elements, float value,
                       cudaStream_t stream) {
  if (num_elements == 0) return cudaSuccess;
  return LaunchKernel(&FillKernel, BlocksFor(num_elements), kThreads, stream,
                      to, num_elements, value);
}

cudaError_t LaunchNarrow(const float* from, int64_t num_elements, int dtype,
                         uint16_t* to, cudaStream_t stream) {
  if (num_elements == 0) return cudaSuccess;
  return LaunchKernel(&NarrowKernel, BlocksFor(num_elements), kThreads, stream,
                      from, num_elements, dtype, to);
}

cudaError_t LoadUpdate() {
  const auto load = [](auto element) {
    using Element = decltype(element);
    cudaError_t loaded = LoadKernel(&UpdateKernel<Element>);
    if (loaded == cudaSuccess) loaded = LoadKernel(&CombineKernel<Element>);
    return loaded == cudaSuccess ? LoadKernel(&NormsKernel<Element>) : loaded;
  };
  cudaError_t error = WithEachElement(load);
  if (error == cudaSuccess) error = load(I8());
  if (error == cudaSuccess) error = LoadKernel(&StepKernel);
  if (error == cudaSuccess) error = LoadKernel(&FillKernel);
  return error == cudaSuccess ? LoadKernel(&NarrowKernel) : error;
}

}  // namespace agg::cuda
