// The Gram matrix of one block, in SIMD, dispatched at run time.
//
// The bits of a pair's sum are fixed by a virtual layout of gram_layout.h,
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
// kI8, which ComputeInt8GramBlock is for.
void ComputeGramBlock(const GramBlock& block);

// The sum of products of two int8 rows over one block of scales is an integer
// below 2^22, which is formed in integers: exact, in whatever order. It is
// multiplied by the two scales in double, and these products are added in the
// order of the scales: so every SIMD target has the same bits, and an entry is
// off by (number of scales + 1) * 2^-53 instead of the number of elements.
//
// Element k of row r has the scale scales[r][k / kScaleBlockElements].
struct Int8GramBlock {
  const char* const* rows = nullptr;     // num_rows pointers to their elements
  const float* const* scales = nullptr;  // likewise
  int64_t num_rows = 0;
  int64_t num_elements = 0;
  double* hi = nullptr;  // PackedGramSize(num_rows), overwritten
  // Low parts of the entries, as many as hi has, overwritten; null: a plain
  // Gram. If not null, products are exact pairs, and sums are two-sums.
  double* lo = nullptr;
};

// Reads the rows' elements and scales, and nothing beyond them.
void ComputeInt8GramBlock(const Int8GramBlock& block);

// "AVX3", "AVX2", ..: what these calls are dispatched to on this machine.
absl::string_view SimdTargetName();

}  // namespace agg

#endif  // AGG_KERNELS_CPU_GRAM_KERNEL_H_
