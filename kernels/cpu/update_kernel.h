// Combine and step one block, in per-target functions that the compiler
// vectorises, dispatched at run time.
//
// Elements are independent, so targets can only differ by their rounding, and
// that is fixed: combined = float(fma(c[P-1], row[P-1], .. fma(c[0], row[0],
// 0))) in double, rows in order; then a formula of element_math.h. Exception:
// which NaN of several an element becomes is up to the compiler.
#ifndef AGG_KERNELS_CPU_UPDATE_KERNEL_H_
#define AGG_KERNELS_CPU_UPDATE_KERNEL_H_

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/dtype.h"
#include "kernels/step_constants.h"
#include "kernels/step_formula.h"

namespace agg {

// Pointers are to the block's first element; unused ones are null.
struct UpdateBlock {
  const char* const* rows = nullptr;
  const float* const* scales = nullptr;  // of int8 rows
  const double* coefficients = nullptr;
  int64_t num_rows = 0;
  DType dtype = DType::kF32;
  StepFormula formula;
  StepConstants constants;
  int64_t num_elements = 0;
  float* master = nullptr;
  float* state0 = nullptr;
  float* state1 = nullptr;
  float* combined = nullptr;  // of Combine and Step alone
  float* snapshot = nullptr;  // 64-byte aligned; null: none (Step alone)
  // Writes `snapshot` past the caches (non-temporal stores).
  bool stream_snapshot = false;
  uint16_t* narrowed = nullptr;
  DType narrowed_dtype = DType::kF32;
};

// Backend::Update of the block; whether all stepped parameters are finite, as
// narrowed, too.
// Reads and writes nothing beyond it.
bool ComputeUpdateBlock(const UpdateBlock& block);

// Its halves, as Backend::Combine and Backend::Step. Combine writes `combined`,
// Step reads it and returns as Update does.
void ComputeCombineBlock(const UpdateBlock& block);
bool ComputeStepBlock(const UpdateBlock& block);

// Backend::Norms of the block: writes nothing. Squares are added in the
// virtual layout of gram_layout.h.
RangeNorms ComputeNormsBlock(const UpdateBlock& block);

// Converts float32 values to a 16-bit dtype. REQUIRES: dtype is not kF32.
void NarrowBlock(const float* from, int64_t num_elements, DType dtype,
                 uint16_t* to);

}  // namespace agg

#endif  // AGG_KERNELS_CPU_UPDATE_KERNEL_H_
