// AdaCons on the vectors themselves, from its mathematics.
#ifndef AGG_TESTS_REFERENCE_ADACONS_RULE_H_
#define AGG_TESTS_REFERENCE_ADACONS_RULE_H_

#include "tests/reference/vectors.h"

namespace agg {
namespace reference {

enum class Rescale { kNone, kMeanNorm, kMatchMean };

struct AdaconsStep {
  Vector direction;
  Vector alphas;           // normalised, per row
  bool fell_back = false;  // direction is the mean
};

// One step: project the mean on each unit gradient, average the sorted
// projections over steps, put them back, normalise, recombine unit gradients.
// *momentum (sorted, empty at first) advances unless the step fell back.
// REQUIRES: the same number of rows each step.
AdaconsStep Adacons(const Rows& rows, Real beta, Real epsilon, Rescale rescale,
                    Vector* momentum);

}  // namespace reference
}  // namespace agg

#endif  // AGG_TESTS_REFERENCE_ADACONS_RULE_H_
