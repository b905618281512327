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
// A thread steps 4 elements at a time, 16 bytes of float32: the widest access
// there is. Update is bound by memory, so everything happens in one pass: each
// row, the master and the state are read once and written once. How they are
// read ahead: piece_ring.cuh. What the results are worth: update_kernel.h.
#include "kernels/cuda/combine_rows.cuh"
#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/load_elements.cuh"
#include "kernels/cuda/piece_ring.cuh"
#include "kernels/cuda/update_elements.cuh"
#include "kernels/cuda/update_kernel.h"
#include "kernels/optimizer_table.h"
#include "kernels/step_constants.h"

namespace agg::cuda {
namespace {

constexpr int kWarpLanes = kUpdateLanes;
constexpr int kThreads = kUpdateThreads;
constexpr int kWarps = kUpdateWarps;
constexpr int kPerBlock = kThreads * kPerThread;

// Blocks that an SM is to hold: more would have to spill.
template <class Element>
inline constexpr int kBlocks = kHasScales<Element> ? 3 : 4;

// ----------------------------------------------------------------------------
// Device functions

// Sums of rows of a thread's quads, in registers: an index that is no constant
// would bring them to memory, so the first quad is taken each time.
template <class Element>
struct QuadSums {
  float of_quads[kQuads<Element>][kPerThread];

  __device__ __forceinline__ void TakeFirst(float (&x)[kPerThread]) {
#pragma unroll
    for (int e = 0; e < kPerThread; ++e) {
      x[e] = of_quads[0][e];
#pragma unroll
      for (int q = 1; q < kQuads<Element>; ++q) {
        of_quads[q - 1][e] = of_quads[q][e];
      }
    }
  }
};

// Parameters and state of the combiner's next quad.
template <class Element>
__device__ __forceinline__ void TakeState(int num_arrays,
                                          Combiner<Element>* combiner,
                                          Four* x) {
  if (num_arrays > 0) combiner->NextArray(x->parameter);
  if (num_arrays > 1) combiner->NextArray(x->state0);
  if (num_arrays > 2) combiner->NextArray(x->state1);
}

// Squares summed up: of parameters, and of what the trust ratio sets against
// them.
struct NormSums {
  double parameters = 0.0;
  double updates = 0.0;

  __device__ __forceinline__ void Add(const NormSums& other) {
    parameters += other.parameters;
    updates += other.updates;
  }
  // `left` elements, perhaps <= 0.
  __device__ __forceinline__ void AddFour(const Four& x, int left) {
#pragma unroll
    for (int e = 0; e < kPerThread; ++e) {
      if (e >= left) break;
      const double parameter = x.parameter[e];
      const double update = x.gradient[e];
      parameters = fma(parameter, parameter, parameters);
      updates = fma(update, update, updates);
    }
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
__global__ void __launch_bounds__(kThreads, kBlocks<Element>)
    UpdateKernel(const UpdateLaunch __grid_constant__ p) {
  const Chunk chunk = ChunkAt(p, blockIdx.x);
  const StepConstants constants = ArrayOf(p.args, p.constants)[chunk.slot];
  const int num_arrays =
      p.formula.kind == OptimizerKind::kNone ? 0 : 1 + p.num_states;
  Combiner<Element> combiner(p, chunk, num_arrays,
                             &BlockShared<CombineShared<Element>>());
  bool finite = true;
  for (int base = 0; base < chunk.num_elements; base += kPerStep<Element>) {
    QuadSums<Element> sums;
    combiner.Sum(base, sums.of_quads);
#pragma unroll 1  // else each formula is there several times
    for (int q = 0; q < kQuads<Element>; ++q) {
      const int offset = combiner.Offset(base, q);
      const int left = chunk.num_elements - offset;
      Four x = {};
      sums.TakeFirst(x.gradient);
      TakeState(num_arrays, &combiner, &x);
      if (left <= 0) continue;
      finite &= StepAndStore(p, constants, chunk.begin + offset, left, &x);
    }
  }
  TellFinite(p, finite);
}

// Block per chunk.
template <class Element>
__global__ void __launch_bounds__(kThreads, kBlocks<Element>)
    CombineKernel(const UpdateLaunch __grid_constant__ p) {
  const Chunk chunk = ChunkAt(p, blockIdx.x);
  Combiner<Element> combiner(p, chunk, 0,
                             &BlockShared<CombineShared<Element>>());
  for (int base = 0; base < chunk.num_elements; base += kPerStep<Element>) {
    QuadSums<Element> sums;
    combiner.Sum(base, sums.of_quads);
#pragma unroll
    for (int q = 0; q < kQuads<Element>; ++q) {
      const int offset = combiner.Offset(base, q);
      const int left = chunk.num_elements - offset;
      if (left <= 0) continue;
      StoreFloats(sums.of_quads[q], left, p.combined + chunk.begin + offset);
    }
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

// Block per chunk. Elements beyond the chunk's end add nothing.
template <class Element>
__global__ void __launch_bounds__(kThreads, kBlocks<Element>)
    NormsKernel(const UpdateLaunch __grid_constant__ p, double* partial) {
  auto& shared = BlockShared<double[kWarps][2]>();
  const Chunk chunk = ChunkAt(p, blockIdx.x);
  const StepConstants constants = ArrayOf(p.args, p.constants)[chunk.slot];
  const int num_arrays = 1 + p.num_states;
  Combiner<Element> combiner(p, chunk, num_arrays,
                             &BlockShared<CombineShared<Element>>());
  NormSums own;
  for (int base = 0; base < chunk.num_elements; base += kPerStep<Element>) {
    QuadSums<Element> sums;
    combiner.Sum(base, sums.of_quads);
#pragma unroll 1
    for (int q = 0; q < kQuads<Element>; ++q) {
      Four x = {};
      sums.TakeFirst(x.gradient);
      TakeState(num_arrays, &combiner, &x);
      VisitFormula(p.formula, DirectFour{constants, &x});
      own.AddFour(x, chunk.num_elements - combiner.Offset(base, q));
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
    cudaError_t loaded = LoadRingKernel(&UpdateKernel<Element>);
    if (loaded == cudaSuccess) loaded = LoadRingKernel(&CombineKernel<Element>);
    if (loaded == cudaSuccess) loaded = LoadRingKernel(&NormsKernel<Element>);
    return loaded;
  };
  cudaError_t error = WithEachElement(load);
  if (error == cudaSuccess) error = load(I8());
  if (error == cudaSuccess) error = LoadKernel(&StepKernel);
  if (error == cudaSuccess) error = LoadKernel(&FillKernel);
  return error == cudaSuccess ? LoadKernel(&NarrowKernel) : error;
}

cudaError_t FindUpdateUse(int dtype, KernelUse* use) {
  return WithRowElement(dtype, [&](auto element) {
    return FindUse(&UpdateKernel<decltype(element)>, kThreads, use);
  });
}

}  // namespace agg::cuda
