// The table of optimizers: one line each. From it come the configuration's
// names, fields and defaults, the size of the state, and the step of every
// backend. To add an optimizer, write its formula (element_math.h), its line
// here, and a sequence of expected values that the tests ask for
// (tests/conformance/optimizer_sequences.cc).
#ifndef AGG_KERNELS_OPTIMIZER_TABLE_H_
#define AGG_KERNELS_OPTIMIZER_TABLE_H_

#include <stdint.h>

namespace agg {

// Which norm of a tensor the trust ratio sets against that of its parameters.
enum class TrustNorm : uint8_t {
  kNone,       // no trust ratio, and no Norms pass
  kGradient,   // of the combined gradient, plus decayed parameters: lars
  kDirection,  // of what the formula's Direction gives: lamb
};

// LINE(enumerator, name, formula, momentum formula, state arrays, trust norm,
//      default epsilon, fields)
//
// enumerator        of OptimizerKind
// name              in the configuration
// formula           type in element_math.h, for a momentum of 0
// momentum formula  template <bool kNesterov> for a momentum above 0, or
//                   NoMomentum
// state arrays      float32 arrays of the parameters' size that `formula`
//                   keeps; a momentum formula keeps one more
// trust norm        of TrustNorm
// default epsilon   0 if there is no such field
// fields            of OptimizerConfig that it uses besides `kind`
//
// A macro, since a line names types as well as values, and since kernels and
// the server need different parts of it. step_formula.h checks that the
// columns agree.
//
// none     master <- combined gradient (an all-reduce service)
// add      master <- master + lr * momentum(combined)  (deltas; with nesterov
//          momentum this is DiLoCo's outer optimizer)
// sgd      PyTorch's SGD: L2 weight decay, momentum, dampening 0, nesterov
// adam     PyTorch's Adam (L2 weight decay inside the gradient)
// adamw    PyTorch's AdamW (decoupled weight decay)
// adagrad  PyTorch's Adagrad (L2 weight decay, lr_decay 0)
// lars     You et al. 2017: sgd whose rate is multiplied by a trust ratio;
//          without momentum it is sgd's formula at that rate
// lamb     You et al. 2020: adamw's direction times a trust ratio
#define AGG_OPTIMIZERS(LINE)                                               \
  LINE(kNone, "none", NoneFormula, NoMomentum, 0, kNone, 0, "")            \
  LINE(kAdd, "add", AddFormula, AddMomentumFormula, 0, kNone, 0,           \
       "momentum nesterov")                                                \
  LINE(kSgd, "sgd", SgdFormula, SgdMomentumFormula, 0, kNone, 0,           \
       "momentum nesterov weight_decay")                                   \
  LINE(kAdam, "adam", AdamFormula, NoMomentum, 2, kNone, 1e-8,             \
       "beta1 beta2 epsilon weight_decay")                                 \
  LINE(kAdamW, "adamw", AdamWFormula, NoMomentum, 2, kNone, 1e-8,          \
       "beta1 beta2 epsilon weight_decay")                                 \
  LINE(kAdagrad, "adagrad", AdagradFormula, NoMomentum, 1, kNone, 1e-10,   \
       "epsilon weight_decay initial_accumulator")                         \
  LINE(kLars, "lars", SgdFormula, LarsMomentumFormula, 0, kGradient, 1e-8, \
       "momentum nesterov weight_decay epsilon trust_coefficient")         \
  LINE(kLamb, "lamb", LambFormula, NoMomentum, 2, kDirection, 1e-8,        \
       "beta1 beta2 epsilon weight_decay")

enum class OptimizerKind : uint8_t {
#define AGG_OPTIMIZER_KIND(kind, ...) kind,
  AGG_OPTIMIZERS(AGG_OPTIMIZER_KIND)
#undef AGG_OPTIMIZER_KIND
};

// The columns of a line that are values.
struct OptimizerLine {
  OptimizerKind kind;
  const char* name;
  int num_state_arrays;  // at a momentum of 0
  TrustNorm trust_norm;
  double default_epsilon;
  const char* fields;  // words with one space between them

  // Whether it uses a field of OptimizerConfig.
  constexpr bool Uses(const char* field) const {
    for (const char* word = fields; *word != 0;) {
      const char* at = field;
      for (; *at != 0 && *word == *at; ++word) ++at;
      if (*at == 0 && (*word == 0 || *word == ' ')) return true;
      while (*word != 0 && *word++ != ' ') {
      }
    }
    return false;
  }
};

inline constexpr OptimizerLine kOptimizers[] = {
#define AGG_OPTIMIZER_LINE(kind, name, formula, momentum_formula, num_arrays, \
                           norm, epsilon, fields)                             \
  {OptimizerKind::kind, name, num_arrays, TrustNorm::norm, epsilon, fields},
    AGG_OPTIMIZERS(AGG_OPTIMIZER_LINE)
#undef AGG_OPTIMIZER_LINE
};

// Lines are in the order of the enumerators.
constexpr const OptimizerLine& LineOf(OptimizerKind kind) {
  return kOptimizers[static_cast<int>(kind)];
}

}  // namespace agg

#endif  // AGG_KERNELS_OPTIMIZER_TABLE_H_
