// Turns an optimizer's options into its formula: first into a plain value,
// which a kernel can be given, then into a type. Host and device.
#ifndef AGG_KERNELS_STEP_FORMULA_H_
#define AGG_KERNELS_STEP_FORMULA_H_

#include <type_traits>

#include "kernels/element_math.h"
#include "kernels/narrow_float.h"
#include "kernels/optimizer_step.h"
#include "kernels/optimizer_table.h"

namespace agg {

enum class StepVariant : uint8_t { kPlain, kMomentum, kNesterov };

// A formula of the table: its line, and which column of it.
struct StepFormula {
  OptimizerKind kind = OptimizerKind::kNone;
  StepVariant variant = StepVariant::kPlain;
};

constexpr StepFormula ChooseFormula(const OptimizerOptions& options) {
  return {options.kind, !HasMomentum(options) ? StepVariant::kPlain
                        : options.nesterov    ? StepVariant::kNesterov
                                              : StepVariant::kMomentum};
}

// Whether a formula has a Direction, whose norm a trust ratio needs:
// Direction(constants, gradient, parameter, state0, state1).
template <class Formula, class = void>
struct HasDirection : std::false_type {};
template <class Formula>
struct HasDirection<Formula, std::void_t<decltype(&Formula::Direction)>>
    : std::true_type {};

// Marks an optimizer of the table that has no momentum formula.
template <bool kNesterov>
struct NoMomentum {};

template <class Plain, template <bool> class WithMomentum, class Visitor>
AGG_HOST_DEVICE auto VisitVariant(StepVariant variant, const Visitor& visit) {
  if constexpr (!std::is_same_v<WithMomentum<false>, NoMomentum<false>>) {
    if (variant == StepVariant::kNesterov) return visit(WithMomentum<true>());
    if (variant == StepVariant::kMomentum) return visit(WithMomentum<false>());
  }
  return visit(Plain());
}

// Returns visit(Formula()), with an object of the formula's type. The result's
// type must be the same for all formulas.
template <class Visitor>
AGG_HOST_DEVICE auto VisitFormula(StepFormula formula, const Visitor& visit) {
  switch (formula.kind) {
#define AGG_VISIT_FORMULA(kind, name, Plain, WithMomentum, ...) \
  case OptimizerKind::kind:                                     \
    return VisitVariant<Plain, WithMomentum>(formula.variant, visit);
    AGG_OPTIMIZERS(AGG_VISIT_FORMULA)
#undef AGG_VISIT_FORMULA
  }
  return visit(NoneFormula());  // not reached: the cases are all there are
}

// Whether the columns of a line agree with each other.
template <class Plain, template <bool> class WithMomentum>
constexpr bool Agrees(const OptimizerLine& line) {
  if (line.num_state_arrays != Plain::kStateArrays) return false;
  if ((line.trust_norm == TrustNorm::kDirection) !=
      HasDirection<Plain>::value) {
    return false;
  }
  if ((line.default_epsilon > 0) != line.Uses("epsilon")) return false;
  if constexpr (std::is_same_v<WithMomentum<false>, NoMomentum<false>>) {
    return !line.Uses("momentum") && !line.Uses("nesterov");
  } else {
    return line.Uses("momentum") && line.Uses("nesterov") &&
           WithMomentum<false>::kStateArrays == Plain::kStateArrays + 1 &&
           WithMomentum<true>::kStateArrays == Plain::kStateArrays + 1;
  }
}

#define AGG_CHECK_LINE(kind, name, Plain, WithMomentum, ...)              \
  static_assert(Agrees<Plain, WithMomentum>(LineOf(OptimizerKind::kind)), \
                "the line of " name " does not agree with its formulas");
AGG_OPTIMIZERS(AGG_CHECK_LINE)
#undef AGG_CHECK_LINE

}  // namespace agg

#endif  // AGG_KERNELS_STEP_FORMULA_H_
