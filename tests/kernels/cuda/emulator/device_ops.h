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
#include <string.h>
#include <vector_functions.h>

#include <algorithm>

#include "kernels/cuda/kernel_args.h"
#include "kernels/double_pair.h"
#include "kernels/narrow_float.h"
#include "tests/kernels/cuda/emulator/device.h"

#undef __global__
#undef __device__
#undef __shared__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __device__
#define __launch_bounds__(...)
// Threads share the kernel's parameters, and may take their addresses.
#define __grid_constant__ &
#define threadIdx (::agg::emulator::thread_index)
#define blockIdx (::agg::emulator::block_index)
#define __syncthreads() ::agg::emulator::BlockBarrier()

namespace agg::cuda {

using std::max;
using std::min;

// c + a b, rounded once. The product of two floats is exact in double, so the
// sum alone rounds; without this, half of the emulated Gram's time would go by
// in the C library's fma, and more by far where the CPU has none.
inline double fma(double a, double b, double c) {
  const bool is_exact = static_cast<double>(static_cast<float>(a)) == a &&
                        static_cast<double>(static_cast<float>(b)) == b;
  return is_exact ? a * b + c : ::fma(a, b, c);
}

inline unsigned Lane() { return emulator::thread_index.x % emulator::kLanes; }

// c[n] += a[0] b[0][n] + .. + a[3] b[3][n] for the lane's two columns n of B,
// which has its column n in the lanes 4 n .. 4 n + 3.
inline void MultiplyRow(const double* a, const double* b, double (&c)[2]) {
  for (unsigned v = 0; v < 2; ++v) {
    const unsigned n = 2 * (Lane() % 4) + v;
    for (unsigned k = 0; k < 4; ++k) c[v] = fma(a[k], b[4 * n + k], c[v]);
  }
}

// The PTX ISA's definition of mma.m8n8k4 with f64.
inline void MultiplyTiles(double a, double b, double (&c)[2]) {
  const emulator::LaneValues& all = emulator::WarpExchange(a, b);
  MultiplyRow(&all.first[Lane() / 4 * 4], all.second, c);
}

// The PTX ISA's definition of mma.m16n8k4 with f64: a lane has A[L/4][L%4] and
// A[L/4+8][L%4], B[L%4][L/4], and C's rows L/4, L/4, L/4+8, L/4+8.
inline void MultiplyTallTiles(double a0, double a1, double b, double (&c0)[2],
                              double (&c1)[2]) {
  const unsigned row = Lane() / 4 * 4;
  const emulator::LaneValues* all = &emulator::WarpExchange(a0, a1);
  double rows[2][4];  // copies: the next exchange may overwrite them
  std::copy_n(&all->first[row], 4, rows[0]);
  std::copy_n(&all->second[row], 4, rows[1]);
  all = &emulator::WarpExchange(b, 0.0);
  MultiplyRow(rows[0], all->first, c0);
  MultiplyRow(rows[1], all->first, c1);
}

inline void MultiplyHalfTall(double a, double b, double (&c)[2]) {
  double unused[2] = {};
  MultiplyTallTiles(a, a, b, c, unused);
}

template <class Real>
Pair<Real> OfLaneBelow(Pair<Real> pair, int offset) {
  const emulator::LaneValues& all = emulator::WarpExchange(pair.hi, pair.lo);
  const unsigned other =
      std::min(Lane() + static_cast<unsigned>(offset), emulator::kLanes - 1);
  return {static_cast<Real>(all.first[other]),
          static_cast<Real>(all.second[other])};
}

inline double OfLaneBelow(double value, int offset) {
  return OfLaneBelow(DoublePair{value, 0.0}, offset).hi;
}

inline uint32_t OrOfWarp(uint32_t bits) {
  const emulator::LaneValues& all = emulator::WarpExchange(bits, 0.0);
  uint32_t any = 0;
  for (const double lane_bits : all.first) {
    any |= static_cast<uint32_t>(lane_bits);
  }
  return any;
}

inline int32_t SumOfWarp(int32_t value) {
  const emulator::LaneValues& all = emulator::WarpExchange(value, 0.0);
  int32_t sum = 0;
  for (const double of_lane : all.first) sum += static_cast<int32_t>(of_lane);
  return sum;
}

inline int32_t DotOfBytes(uint32_t a, uint32_t b, int32_t sum) {
  for (int byte = 0; byte < 32; byte += 8) {
    sum += static_cast<int8_t>(a >> byte) * static_cast<int8_t>(b >> byte);
  }
  return sum;
}

inline void JoinWarp() { emulator::WarpExchange(0.0, 0.0); }

inline uint32_t SelectBytes(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t all = static_cast<uint64_t>(high) << 32 | low;
  uint32_t selected = 0;
  for (unsigned byte = 0; byte < 4; ++byte) {
    const unsigned number = selector >> (4 * byte) & 7u;
    selected |= static_cast<uint32_t>(all >> (8 * number) & 0xffu)
                << (8 * byte);
  }
  return selected;
}

inline double DoubleOfWords(uint32_t high, uint32_t low) {
  const uint64_t bits = static_cast<uint64_t>(high) << 32 | low;
  double value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

inline float WidenF16(uint16_t bits) { return FloatOfF16(bits); }

inline void CheckAligned(const void* from, size_t num_bytes) {
  if (reinterpret_cast<uintptr_t>(from) % num_bytes == 0) return;
  fprintf(stderr, "misaligned load of %zu bytes\n", num_bytes);
  abort();
}

template <class T>
T LoadConstant(const T* from) {
  CheckAligned(from, sizeof(T));
  return *from;
}

using SharedAt = uintptr_t;

inline SharedAt SharedAtOf(const void* shared) {
  return reinterpret_cast<SharedAt>(shared);
}

inline SharedAt InRegister(SharedAt at) { return at; }

template <class T>
T LoadShared(SharedAt from) {
  const auto* const shared = reinterpret_cast<const void*>(from);
  CheckAligned(shared, sizeof(T));
  T value;
  memcpy(&value, shared, sizeof(T));
  return value;
}

inline void CopySomeAsync(SharedAt to, const void* from, int num_bytes) {
  emulator::StartCopy(reinterpret_cast<void*>(to), from,
                      static_cast<size_t>(std::clamp(num_bytes, 0, 16)), 16);
}

inline void CopyAsync(SharedAt to, const void* from) {
  emulator::StartCopy(reinterpret_cast<void*>(to), from, 16, 16);
}

inline void CopyWordAsync(SharedAt to, const void* from, bool reads) {
  emulator::StartCopy(reinterpret_cast<void*>(to), from, reads ? 4 : 0, 4);
}

inline void CommitCopies() { emulator::CommitCopies(); }

template <int kNumLeft>
void WaitForCopies() {
  emulator::WaitForCopies(kNumLeft);
}

// Blocks run one after the other: one copy serves the threads of each. The
// first thread of a block finds it full of what is no result: NaNs, as doubles
// and floats, and addresses that cannot be read.
template <class T>
T& BlockShared() {
  static T memory;
  static int64_t poisoned_for = 0;
  if (poisoned_for != emulator::BlockNumber()) {
    poisoned_for = emulator::BlockNumber();
    std::fill_n(reinterpret_cast<unsigned char*>(&memory), sizeof(T),
                emulator::kPoison);
  }
  return memory;
}

template <class... Parameters>
cudaError_t LoadKernel(void (* /*kernel*/)(Parameters...)) {
  return emulator::LoadError();
}

template <class... Parameters>
cudaError_t LoadRingKernel(void (*kernel)(Parameters...)) {
  const cudaError_t error = LoadKernel(kernel);
  return error == cudaSuccess
             ? emulator::PreferShared(reinterpret_cast<const void*>(kernel))
             : error;
}

// Answers as if all took 64 registers and 48 KB: four blocks of 128 or 256
// threads.
template <class... Parameters>
cudaError_t FindUse(void (* /*kernel*/)(Parameters...), int threads,
                    KernelUse* use) {
  *use = {threads, 64, 48 << 10, 4};
  return emulator::LoadError();
}

template <class... Parameters, class... Arguments>
cudaError_t LaunchKernel(void (*kernel)(Parameters...), dim3 grid,
                         unsigned threads, cudaStream_t stream,
                         Arguments... arguments) {
  if (grid.x == 0 || grid.y == 0 || threads == 0 || threads > 1024) {
    return cudaErrorInvalidConfiguration;
  }
  const cudaError_t error = emulator::TakeLaunchError(stream);
  if (error != cudaSuccess) return error;
  emulator::Enqueue(stream, [=] {
    emulator::RunGrid(grid, threads, [&] { kernel(arguments...); });
  });
  return cudaSuccess;
}

}  // namespace agg::cuda

#endif  // AGG_TESTS_KERNELS_CUDA_EMULATOR_DEVICE_OPS_H_
