// The Gram matrix of one block of int8 rows, in SIMD, dispatched at run time.
//
// The sum of products of two rows over one block of scales is an integer below
// 2^22, which is formed in integers: exact, in whatever order. It is multiplied
// by the two scales in double, and these products are added in the order of the
// scales: so every SIMD target has the same bits, and an entry is off by
// (number of scales + 1) * 2^-53 instead of the number of elements.
#ifndef AGG_KERNELS_CPU_GRAM_INT8_KERNEL_H_
#define AGG_KERNELS_CPU_GRAM_INT8_KERNEL_H_

#include <cstdint>

namespace agg {

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

}  // namespace agg

#endif  // AGG_KERNELS_CPU_GRAM_INT8_KERNEL_H_
