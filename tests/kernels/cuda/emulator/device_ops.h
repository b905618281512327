// Takes the place of kernels/cuda/device_ops.cuh: its functions, and the words
// of CUDA C++, for a host compiler. Include before a .cu file.
#ifndef AGG_TESTS_KERNELS_CUDA_EMULATOR_DEVICE_OPS_H_
#define AGG_TESTS_KERNELS_CUDA_EMULATOR_DEVICE_OPS_H_

// The guard of the file that this one stands in for.
#define AGG_KERNELS_CUDA_DEVICE_OPS_CUH_

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <vector_functions.h>

#include <algorithm>

#include "kernels/double_pair.h"
#include "kernels/narrow_float.h"
#include "tests/kernels/cuda/emulator/device.h"

#undef __global__
#undef __device__
#undef __shared__
#undef __launch_bounds__
#define __global__
#define __device__
// Blocks run one after the other: one copy serves the threads of each.
#define __shared__ static
#define __launch_bounds__(threads)
#define threadIdx (::agg::emulator::thread_index)
#define blockIdx (::agg::emulator::block_index)
#define __syncthreads() ::agg::emulator::BlockBarrier()

namespace agg::cuda {

using std::max;
using std::min;

// The PTX ISA's definition of mma.m8n8k4 with f64.
inline void MultiplyTiles(double a, double b, double (&c)[2]) {
  const double(*all)[2] = emulator::WarpExchange(a, b);
  const int lane = static_cast<int>(emulator::thread_index.x % 32);
  for (int v = 0; v < 2; ++v) {
    const int m = lane / 4;
    const int n = 2 * (lane % 4) + v;
    for (int k = 0; k < 4; ++k) {
      c[v] = fma(all[4 * m + k][0], all[4 * n + k][1], c[v]);
    }
  }
}

// The PTX ISA's definition of mma.m16n8k4 with f64: a lane has A[L/4][L%4] and
// A[L/4+8][L%4], B[L%4][L/4], and C's rows L/4, L/4, L/4+8, L/4+8.
inline void MultiplyTallTiles(double a0, double a1, double b, double (&c0)[2],
                              double (&c1)[2]) {
  const int lane = static_cast<int>(emulator::thread_index.x % 32);
  double a[2][4];  // the lane's two rows of A
  const double(*all)[2] = emulator::WarpExchange(a0, a1);
  for (int k = 0; k < 4; ++k) {
    a[0][k] = all[lane / 4 * 4 + k][0];
    a[1][k] = all[lane / 4 * 4 + k][1];
  }
  all = emulator::WarpExchange(b, 0.0);
  double* const c[] = {&c0[0], &c0[1], &c1[0], &c1[1]};
  for (int i = 0; i < 4; ++i) {
    const int n = 2 * (lane % 4) + i % 2;
    for (int k = 0; k < 4; ++k) {
      *c[i] = fma(a[i / 2][k], all[4 * n + k][0], *c[i]);
    }
  }
}

inline void MultiplyHalfTall(double a, double b, double (&c)[2]) {
  double unused[2] = {};
  MultiplyTallTiles(a, a, b, c, unused);
}

template <class Real>
Pair<Real> OfLaneBelow(Pair<Real> pair, int offset) {
  const int lane = static_cast<int>(emulator::thread_index.x % 32);
  const double(*all)[2] = emulator::WarpExchange(pair.hi, pair.lo);
  const double* const other = all[std::min(lane + offset, 31)];
  return {static_cast<Real>(other[0]), static_cast<Real>(other[1])};
}

inline double OfLaneBelow(double value, int offset) {
  return OfLaneBelow(DoublePair{value, 0.0}, offset).hi;
}

inline uint32_t OrOfWarp(uint32_t bits) {
  const double(*all)[2] = emulator::WarpExchange(bits, 0.0);
  uint32_t any = 0;
  for (int lane = 0; lane < 32; ++lane) {
    any |= static_cast<uint32_t>(all[lane][0]);
  }
  return any;
}

inline void JoinWarp() { emulator::WarpExchange(0.0, 0.0); }

inline float WidenF16(uint16_t bits) { return FloatOfF16(bits); }

template <class T>
T LoadConstant(const T* from) {
  if (reinterpret_cast<uintptr_t>(from) % sizeof(T) != 0) {
    fprintf(stderr, "misaligned load of %zu bytes\n", sizeof(T));
    abort();
  }
  return *from;
}

template <class... Parameters>
cudaError_t LoadKernel(void (* /*kernel*/)(Parameters...)) {
  return cudaSuccess;
}

template <class... Parameters, class... Arguments>
cudaError_t LaunchKernel(void (*kernel)(Parameters...), dim3 grid,
                         unsigned threads, cudaStream_t stream,
                         Arguments... arguments) {
  if (grid.x == 0 || grid.y == 0 || threads == 0 || threads > 1024) {
    return cudaErrorInvalidConfiguration;
  }
  const cudaError_t error = emulator::TakeLaunchError();
  if (error != cudaSuccess) return error;
  emulator::Enqueue(stream, [=] {
    emulator::RunGrid(grid, threads, [&] { kernel(arguments...); });
  });
  return cudaSuccess;
}

}  // namespace agg::cuda

#endif  // AGG_TESTS_KERNELS_CUDA_EMULATOR_DEVICE_OPS_H_
