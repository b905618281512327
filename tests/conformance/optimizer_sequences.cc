#include "tests/conformance/optimizer_sequences.h"

#include "kernels/optimizer_table.h"

namespace agg {

std::vector<OptimizerSequence> OptimizerSequences() {
  std::vector<OptimizerSequence> cases;
  const auto add = [&cases](const char* name, OptimizerKind kind,
                            float momentum, bool nesterov, float weight_decay,
                            double first, double second) {
    OptimizerSequence c{
        name, OptimizerOptions(), weight_decay, {first, second}};
    c.options.kind = kind;
    c.options.momentum = momentum;
    c.options.nesterov = nesterov;
    cases.push_back(c);
  };
  using Kind = OptimizerKind;
  // 1 - .1 * .5; - .1 * -.25
  add("sgd", Kind::kSgd, 0, false, 0, 0.95, 0.975);
  // decayed: .5 + .2 * 1 = .7; -.25 + .2 * .93 = -.064
  add("sgd decay", Kind::kSgd, 0, false, 0.2f, 0.93, 0.9364);
  // buffer .5; .9 * .5 - .25 = .2
  add("sgd momentum", Kind::kSgd, 0.9f, false, 0, 0.95, 0.93);
  // .5 + .9 * .5 = .95; -.25 + .9 * .2 = -.07
  add("sgd nesterov", Kind::kSgd, 0.9f, true, 0, 0.905, 0.912);
  // the same directions, added
  add("diloco", Kind::kAdd, 0.9f, true, 0, 1.095, 1.088);
  add("none", Kind::kNone, 0, false, 0, 0.5, -0.25);
  // m^ = g, v^ = g^2 at first: a step of the rate. Then m = .9 * .05 - .025 =
  // .02, m^ = .02 / .19; v = .999 * .00025 + .0000625 = .00031225, v^ =
  // .00031225 / .001999 = .156203; .1 * .105263 / .395225 = .026634
  add("adam", Kind::kAdam, 0, false, 0, 0.9, 0.873366);
  // shrink by 1 - .1 * .2 first: .98 - .1; .88 * .98 - .026634
  add("adamw", Kind::kAdamW, 0, false, 0.2f, 0.88, 0.835766);
  // sum .25: a step of the rate; sum .3125: .1 * .25 / .559017 = .044721
  add("adagrad", Kind::kAdagrad, 0, false, 0, 0.9, 0.944721);
  // the rate is in the buffer: .05; .9 * .05 - .025 = .02
  add("lars momentum", Kind::kLars, 0.9f, false, 0, 0.95, 0.93);
  // adam's direction plus decay: 1 + .2 * 1; .26634 + .2 * .88 = .44234
  add("lamb", Kind::kLamb, 0, false, 0.2f, 0.88, 0.835766);
  return cases;
}

}  // namespace agg
