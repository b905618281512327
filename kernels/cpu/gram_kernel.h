// The Gram matrix of one block, in SIMD, dispatched at run time.
//
// The bits of a pair's sum are fixed by a virtual layout of gram_lanes.h,
// whatever the target and the tiling. A product of two float32, bf16 or f16
// values is exact in double, so that a target with fused multiply-add and one
// without round alike.
#ifndef AGG_KERNELS_CPU_GRAM_KERNEL_H_
#define AGG_KERNELS_CPU_GRAM_KERNEL_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "kernels/dtype.h"

namespace agg {

struct GramBlock {
  const char* const* rows = nullptr;  // num_rows pointers to their elements
  int64_t num_rows = 0;
  DType dtype = DType::kF32;
  int64_t num_elements = 0;
  double* hi = nullptr;  // PackedGramSize(num_rows), overwritten
  double* lo = nullptr;  // as hi, or null: plain, not compensated
  // GramScratchDoubles(num_rows) doubles, 64-byte aligned, one per thread.
  double* scratch = nullptr;
};

int64_t GramScratchDoubles(int64_t num_rows);

// Reads the rows' elements, and nothing beyond them. REQUIRES: dtype is not
// kI8, which gram_int8_kernel.h is for.
void ComputeGramBlock(const GramBlock& block);

// "AVX3", "AVX2", ..: what the calls above are dispatched to on this machine.
absl::string_view SimdTargetName();

}  // namespace agg

#endif  // AGG_KERNELS_CPU_GRAM_KERNEL_H_
