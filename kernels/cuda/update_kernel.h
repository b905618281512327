// Launchers of Update, its two halves and Norms, and of what Load needs.
//
// Work on `stream`, allocate nothing, do not wait, return launch errors.
// Update is bit-identical to the CPU backend on every device: elements are
// independent, sums run over the rows in order in fma's, and the formulas are
// element_math.h's with correctly rounded operations (a NaN's payload
// excepted). Norms is deterministic on every device: squares are exact in
// double and added in an order that the chunk gives. No atomics.
#ifndef AGG_KERNELS_CUDA_UPDATE_KERNEL_H_
#define AGG_KERNELS_CUDA_UPDATE_KERNEL_H_

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "kernels/cuda/kernel_args.h"
#include "kernels/step_constants.h"
#include "kernels/step_formula.h"

namespace agg::cuda {

// All pointers are to device memory, unless they say otherwise. Arrays of the
// layout start at its element 0 and are 16-byte aligned; those that the formula
// has not may be null.
struct UpdateLaunch {
  InlineArgs args;
  ArgArray<const void*> rows;  // num_rows
  int num_rows = 0;            // >= 1; LaunchStep: not read
  int dtype = 0;               // agg::DType's value
  int64_t scale_offset = 0;    // of int8: where a row's scales begin
  StepFormula formula;
  int num_states = 0;  // 0, 1 or 2
  ArgArray<Slot> slots;
  int32_t num_slots = 0;
  const Chunk* chunks = nullptr;  // pinned; null: they follow from the slots
  int64_t num_chunks = 0;         // of all slots; 0 launches nothing
  ArgArray<StepConstants> constants;  // [slot]
  ArgArray<double> coefficients;      // [slot][row]
  float* combined = nullptr;  // LaunchCombine, LaunchStep; may be pinned memory
  float* master = nullptr;
  float* state0 = nullptr;
  float* state1 = nullptr;
  uint16_t* narrowed = nullptr;  // null when nothing is narrowed
  int narrowed_dtype = 0;
  // Becomes 1 if a stepped parameter is not finite, else stays; may be pinned
  // memory; or null.
  int* not_finite = nullptr;
};

// Leaves 16 bytes for a kernel's other parameters.
static_assert(sizeof(UpdateLaunch) + 16 <= kParameterBytes);

// Launches Backend::Update of the chunks: one pass over everything. The stepped
// master is what is published; it is copied to the host from there.
cudaError_t LaunchUpdate(const UpdateLaunch& launch, cudaStream_t stream);

// Launch the halves of Update. LaunchCombine reads rows and coefficients, and
// writes the combined gradient alone; LaunchStep reads that, and does the rest.
cudaError_t LaunchCombine(const UpdateLaunch& launch, cudaStream_t stream);
cudaError_t LaunchStep(const UpdateLaunch& launch, cudaStream_t stream);

// Launches Backend::Norms: partial[2 * chunk] gets the parameters' and
// partial[2 * chunk + 1] the update's squared norm. Stores nothing else.
// LaunchSums of gram_kernel.h adds the chunks up.
cudaError_t LaunchNorms(const UpdateLaunch& launch, double* partial,
                        cudaStream_t stream);

cudaError_t LaunchFill(float* to, int64_t num_elements, float value,
                       cudaStream_t stream);
cudaError_t LaunchNarrow(const float* from, int64_t num_elements, int dtype,
                         uint16_t* to, cudaStream_t stream);

// Brings all kernels to the device, as their first launches would.
cudaError_t LoadUpdate();

// Finds what LaunchUpdate's kernel takes.
cudaError_t FindUpdateUse(int dtype, KernelUse* use);

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_UPDATE_KERNEL_H_
