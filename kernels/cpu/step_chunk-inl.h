// Optimizer steps over arrays, per Highway target: the formulas of
// element_math.h in plain loops that the compiler vectorises for the target.
// Formulas are inlined into the loops, and so get the target's instructions;
// choosing one happens once per block and needs none.

#if defined(AGG_KERNELS_CPU_STEP_CHUNK_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)  // NOLINT
#ifdef AGG_KERNELS_CPU_STEP_CHUNK_INL_H_
#undef AGG_KERNELS_CPU_STEP_CHUNK_INL_H_
#else
#define AGG_KERNELS_CPU_STEP_CHUNK_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/narrow_float.h"
#include "kernels/step_constants.h"
#include "kernels/step_formula.h"

HWY_BEFORE_NAMESPACE();
namespace agg {
namespace HWY_NAMESPACE {

using StepFunction = void (*)(const StepConstants& constants,
                              const float* gradient, int64_t num_elements,
                              float* parameters, float* state0, float* state1);

// State arrays that the formula does not have may be null.
template <class Formula>
HWY_NOINLINE void StepChunk(const StepConstants& constants,
                            const float* HWY_RESTRICT gradient,
                            int64_t num_elements,
                            float* HWY_RESTRICT parameters,
                            float* HWY_RESTRICT state0,
                            float* HWY_RESTRICT state1) {
  const StepConstants c = constants;  // may not alias the arrays
  for (int64_t k = 0; k < num_elements; ++k) {
    float parameter = parameters[k];
    float s0 = Formula::kStateArrays > 0 ? state0[k] : 0.0f;
    float s1 = Formula::kStateArrays > 1 ? state1[k] : 0.0f;
    Formula::Apply(c, gradient[k], &parameter, &s0, &s1);
    parameters[k] = parameter;
    if (Formula::kStateArrays > 0) state0[k] = s0;
    if (Formula::kStateArrays > 1) state1[k] = s1;
  }
}

// Visitor of VisitFormula: returns the formula's loop.
struct StepChunkOf {
  template <class Formula>
  StepFunction operator()(Formula /*formula*/) const {
    return &StepChunk<Formula>;
  }
};

inline StepFunction ChooseStep(StepFormula formula) {
  return VisitFormula(formula, StepChunkOf());
}

using DirectionFunction = void (*)(const StepConstants& constants,
                                   const float* gradient, int64_t num_elements,
                                   const float* parameters, const float* state0,
                                   const float* state1, float* directions);

// Writes the directions that a step would take; the state stays as it is.
template <class Formula>
HWY_NOINLINE void DirectChunk(const StepConstants& constants,
                              const float* HWY_RESTRICT gradient,
                              int64_t num_elements,
                              const float* HWY_RESTRICT parameters,
                              const float* HWY_RESTRICT state0,
                              const float* HWY_RESTRICT state1,
                              float* HWY_RESTRICT directions) {
  const StepConstants c = constants;
  for (int64_t k = 0; k < num_elements; ++k) {
    float s0 = Formula::kStateArrays > 0 ? state0[k] : 0.0f;
    float s1 = Formula::kStateArrays > 1 ? state1[k] : 0.0f;
    directions[k] = Formula::Direction(c, gradient[k], parameters[k], &s0, &s1);
  }
}

// Visitor of VisitFormula: returns the loop over directions, or null where the
// norm that is asked for is the gradient's.
struct DirectChunkOf {
  template <class Formula>
  DirectionFunction operator()(Formula /*formula*/) const {
    if constexpr (HasDirection<Formula>::value) {
      return &DirectChunk<Formula>;
    } else {
      return nullptr;
    }
  }
};

inline DirectionFunction ChooseDirection(StepFormula formula) {
  return VisitFormula(formula, DirectChunkOf());
}

HWY_NOINLINE inline void NarrowToBf16(const float* HWY_RESTRICT from,
                                      int64_t num_elements,
                                      uint16_t* HWY_RESTRICT to) {
  for (int64_t k = 0; k < num_elements; ++k) to[k] = Bf16OfFloat(from[k]);
}

HWY_NOINLINE inline void NarrowToF16(const float* HWY_RESTRICT from,
                                     int64_t num_elements,
                                     uint16_t* HWY_RESTRICT to) {
  for (int64_t k = 0; k < num_elements; ++k) to[k] = F16OfFloat(from[k]);
}

}  // namespace HWY_NAMESPACE
}  // namespace agg
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
