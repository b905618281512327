// Optimizer steps over arrays, per Highway target: element_math.h in plain
// loops that the compiler vectorises for the target.

#if defined(AGG_KERNELS_CPU_STEP_CHUNK_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)  // NOLINT
#ifdef AGG_KERNELS_CPU_STEP_CHUNK_INL_H_
#undef AGG_KERNELS_CPU_STEP_CHUNK_INL_H_
#else
#define AGG_KERNELS_CPU_STEP_CHUNK_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/element_math.h"
#include "kernels/optimizer_step.h"

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

template <template <bool> class Formula>
StepFunction MomentumStep(bool nesterov) {
  return nesterov ? &StepChunk<Formula<true>> : &StepChunk<Formula<false>>;
}

inline StepFunction ChooseStep(const OptimizerOptions& optimizer) {
  const bool has_momentum = optimizer.momentum != 0.0f;
  switch (optimizer.kind) {
    case OptimizerKind::kNone:
      return &StepChunk<NoneFormula>;
    case OptimizerKind::kAdd:
      return has_momentum ? MomentumStep<AddMomentumFormula>(optimizer.nesterov)
                          : &StepChunk<AddFormula>;
    case OptimizerKind::kSgd:
      return has_momentum ? MomentumStep<SgdMomentumFormula>(optimizer.nesterov)
                          : &StepChunk<SgdFormula>;
    case OptimizerKind::kAdam:
      return &StepChunk<AdamFormula>;
    case OptimizerKind::kAdamW:
      return &StepChunk<AdamWFormula>;
    case OptimizerKind::kAdagrad:
      return &StepChunk<AdagradFormula>;
    case OptimizerKind::kLars:  // without momentum: sgd at the trusted rate
      return has_momentum
                 ? MomentumStep<LarsMomentumFormula>(optimizer.nesterov)
                 : &StepChunk<SgdFormula>;
    case OptimizerKind::kLamb:
      return &StepChunk<LambFormula>;
  }
  return &StepChunk<NoneFormula>;
}

// lamb: the directions that a step would take; the state stays as it is.
HWY_NOINLINE inline void LambDirections(const StepConstants& constants,
                                        const float* HWY_RESTRICT gradient,
                                        int64_t num_elements,
                                        const float* HWY_RESTRICT parameters,
                                        const float* HWY_RESTRICT state0,
                                        const float* HWY_RESTRICT state1,
                                        float* HWY_RESTRICT directions) {
  const StepConstants c = constants;
  for (int64_t k = 0; k < num_elements; ++k) {
    float m = state0[k];
    float v = state1[k];
    directions[k] =
        LambFormula::Direction(c, gradient[k], parameters[k], &m, &v);
  }
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
