// Everything here that only a device can do: instructions without a C++
// spelling, and the launch. Kernels use nothing else of the kind, so that
// tests can put another file in this one's place and run them on a host
// (tests/kernels/cuda/emulator/device_ops.h).
#ifndef AGG_KERNELS_CUDA_DEVICE_OPS_CUH_
#define AGG_KERNELS_CUDA_DEVICE_OPS_CUH_

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "kernels/cuda/kernel_args.h"
#include "kernels/double_pair.h"

namespace agg::cuda {

// c += A B for 8x4 by 4x8 doubles; lanes and entries as gram_schedule.h says.
// All lanes of the warp call it.
__device__ __forceinline__ void MultiplyTiles(double a, double b,
                                              double (&c)[2]) {
  asm volatile(
      "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 "
      "{%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(c[0]), "+d"(c[1])
      : "d"(a), "d"(b));
}

// Multiplies two 8x4 tiles with one 4x8 tile: c0 += A0 B and c1 += A1 B. One
// instruction on sm_90, whose fp64 units are made for 16 rows. Later cards have
// it, too, but do it as two of 8 rows.
__device__ __forceinline__ void MultiplyTallTiles(double a0, double a1,
                                                  double b, double (&c0)[2],
                                                  double (&c1)[2]) {
#if __CUDA_ARCH__ == 900
  asm volatile(
      "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+d"(c0[0]), "+d"(c0[1]), "+d"(c1[0]), "+d"(c1[1])
      : "d"(a0), "d"(a1), "d"(b));
#else
  MultiplyTiles(a0, b, c0);
  MultiplyTiles(a1, b, c1);
#endif
}

// c += A B by the instruction that MultiplyTallTiles is, half of which
// is wasted where that has 16 rows.
__device__ __forceinline__ void MultiplyHalfTall(double a, double b,
                                                 double (&c)[2]) {
#if __CUDA_ARCH__ == 900
  double unused[2] = {};
  MultiplyTallTiles(a, a, b, c, unused);
#else
  MultiplyTiles(a, b, c);
#endif
}

// Returns `value` of the lane `offset` lanes on. All lanes of the warp call it;
// the last `offset` ones get any value.
__device__ __forceinline__ double OfLaneBelow(double value, int offset) {
  return __shfl_down_sync(0xffffffffu, value, offset);
}
template <class Real>
__device__ __forceinline__ Pair<Real> OfLaneBelow(Pair<Real> pair, int offset) {
  Pair<Real> other;
  other.hi = __shfl_down_sync(0xffffffffu, pair.hi, offset);
  other.lo = __shfl_down_sync(0xffffffffu, pair.lo, offset);
  return other;
}

// Returns the bits that any lane of the warp has. All lanes call it.
__device__ __forceinline__ uint32_t OrOfWarp(uint32_t bits) {
  return __reduce_or_sync(0xffffffffu, bits);
}

// Returns the sum of what the lanes of the warp have. All lanes call it.
__device__ __forceinline__ int32_t SumOfWarp(int32_t value) {
  return __reduce_add_sync(0xffffffffu, value);
}

// Returns sum + the products of four signed bytes with four.
__device__ __forceinline__ int32_t DotOfBytes(uint32_t a, uint32_t b,
                                              int32_t sum) {
  return __dp4a(static_cast<int32_t>(a), static_cast<int32_t>(b), sum);
}

// Returns four of the bytes of `low` and `high`, which are number 0 to 7: byte
// i is the one that digit i of `selector` in hexadecimal names.
__device__ __forceinline__ uint32_t SelectBytes(uint32_t low, uint32_t high,
                                                uint32_t selector) {
  return __byte_perm(low, high, selector);
}

// Waits for all lanes of the warp; what they have read of shared memory may be
// overwritten by others of them after it. All lanes call it.
__device__ __forceinline__ void JoinWarp() { __syncwarp(); }

// Widens exactly, as narrow_float.h's formula does, in one instruction instead
// of ten.
__device__ __forceinline__ float WidenF16(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

__device__ __forceinline__ double DoubleOfWords(uint32_t high, uint32_t low) {
  return __hiloint2double(static_cast<int>(high), static_cast<int>(low));
}

// REQUIRES: `from` is aligned to T; nobody writes it while the kernel runs.
template <class T>
__device__ __forceinline__ T LoadConstant(const T* from) {
  return __ldg(from);
}

// Where something lies in shared memory, as the instructions take it.
using SharedAt = uint32_t;
__device__ __forceinline__ SharedAt SharedAtOf(const void* shared) {
  return static_cast<SharedAt>(__cvta_generic_to_shared(shared));
}

// Returns `at` itself, but the compiler cannot see where it comes from:
// otherwise it forms it again each time it is used, from the block's window, in
// three instructions that wait for each other.
__device__ __forceinline__ SharedAt InRegister(SharedAt at) {
  asm volatile("" : "+r"(at));
  return at;
}

// REQUIRES: `from` is aligned to T.
template <class T>
__device__ __forceinline__ T LoadShared(SharedAt from) {
  return *static_cast<const T*>(__cvta_shared_to_generic(from));
}

// Starts to copy 16 bytes of device memory to shared memory, which may
// not be looked at, nor written to, before WaitForCopies says that they are
// there. REQUIRES: both are aligned to 16 bytes; nobody writes to `from` before
// that.
__device__ __forceinline__ void CopyAsync(SharedAt to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from)
               : "memory");
}

// Starts a copy as CopyAsync does, but of the first `num_bytes` only, which may
// be <= 0, and of zeros for the rest. Reads nothing beyond those bytes.
__device__ __forceinline__ void CopySomeAsync(SharedAt to, const void* from,
                                              int num_bytes) {
  const int read = min(max(num_bytes, 0), 16);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
               "l"(from), "r"(read)
               : "memory");
}

// Starts a copy as CopySomeAsync does, but of 4 bytes, to which both addresses
// are aligned: of all of them, or of zeros if `reads` is false.
__device__ __forceinline__ void CopyWordAsync(SharedAt to, const void* from,
                                              bool reads) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to),
               "l"(from), "r"(reads ? 4 : 0)
               : "memory");
}

// Makes a group of the copies that the thread has started since its last group,
// even if there are none.
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits for all groups of the thread but its last kNumLeft: their bytes are
// there for the thread itself.
template <int kNumLeft>
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kNumLeft) : "memory");
}

// Returns memory that the threads of a block share, not initialised. A kernel
// has one object of a type T.
template <class T>
__device__ __forceinline__ T& BlockShared() {
  __shared__ T memory;
  return memory;
}

// Launches `kernel`; returns the launch's error. REQUIRES: no dimension is 0.
template <class... Parameters, class... Arguments>
cudaError_t LaunchKernel(void (*kernel)(Parameters...), dim3 grid,
                         unsigned threads, cudaStream_t stream,
                         Arguments... arguments) {
  // Clears an earlier call's error, which that call has returned; the launch's
  // own comes after.
  cudaGetLastError();
  kernel<<<grid, threads, 0, stream>>>(arguments...);
  return cudaGetLastError();
}

// Brings `kernel` to the device: otherwise its first launch does, within a
// round.
template <class... Parameters>
cudaError_t LoadKernel(void (*kernel)(Parameters...)) {
  cudaFuncAttributes unused;
  return cudaFuncGetAttributes(&unused, kernel);
}

// Brings a kernel with a ring to the device, and asks for as much shared
// memory, and as little L1 cache, as there can be: what cp.async.cg copies goes
// past L1, and a smaller carveout would leave fewer blocks room.
template <class... Parameters>
cudaError_t LoadRingKernel(void (*kernel)(Parameters...)) {
  const cudaError_t error = LoadKernel(kernel);
  if (error != cudaSuccess) return error;
  return cudaFuncSetAttribute(kernel,
                              cudaFuncAttributePreferredSharedMemoryCarveout,
                              cudaSharedmemCarveoutMaxShared);
}

// Finds what `kernel` takes in blocks of `threads`.
template <class... Parameters>
cudaError_t FindUse(void (*kernel)(Parameters...), int threads,
                    KernelUse* use) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess) return error;
  use->threads = threads;
  use->registers = attributes.numRegs;
  use->shared_bytes = static_cast<int>(attributes.sharedSizeBytes);
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(&use->blocks_per_sm,
                                                       kernel, threads, 0);
}

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_DEVICE_OPS_CUH_
