// Two steps of each optimizer, worked by hand. A new optimizer adds a line.
#ifndef AGG_TESTS_CONFORMANCE_OPTIMIZER_SEQUENCES_H_
#define AGG_TESTS_CONFORMANCE_OPTIMIZER_SEQUENCES_H_

#include <vector>

#include "kernels/optimizer_step.h"

namespace agg {

// Steps from the parameter 1, by the gradients 0.5 and then -0.25 at the
// learning rate 0.1 and the trust ratio 1.
struct OptimizerSequence {
  const char* name;
  OptimizerOptions options;
  float weight_decay;
  double after[2];  // the parameter after each step
};

std::vector<OptimizerSequence> OptimizerSequences();

}  // namespace agg

#endif  // AGG_TESTS_CONFORMANCE_OPTIMIZER_SEQUENCES_H_
