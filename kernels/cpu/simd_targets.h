// The SIMD targets that kernels/cpu is compiled for. Included first by the
// files that Highway re-includes once per target.
//
// Highway's list on x86-64, less SSSE3: plain C++ for what has no SSE4.1,
// SSE4, AVX2 with FMA and F16C, and AVX3 (AVX-512 F, BW, CD, DQ, VL). AVX3_DL
// would add no instruction that these kernels use. Elsewhere (NEON): Highway's
// own choice.
#ifndef AGG_KERNELS_CPU_SIMD_TARGETS_H_
#define AGG_KERNELS_CPU_SIMD_TARGETS_H_

#define HWY_DISABLED_TARGETS HWY_SSSE3
// Also the slowest target, so that the tests compare its bits.
#define HWY_COMPILE_ALL_ATTAINABLE

#endif  // AGG_KERNELS_CPU_SIMD_TARGETS_H_
