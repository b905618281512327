// The transcription of every combination rule, and all of them by name. A rule
// of the server's table without one here fails
// tests/server/combine/combination_rule_test.
#ifndef AGG_TESTS_REFERENCE_COMBINATION_RULES_H_
#define AGG_TESTS_REFERENCE_COMBINATION_RULES_H_

#include <string>
#include <vector>

#include "tests/reference/row_statistics.h"

namespace agg {
namespace reference {

// Krum's score of each row: the sum of its P - f - 2 least squared distances to
// others, f lowered to what 2 f + 3 <= P allows, and at least one distance (P >
// 1). REQUIRES everywhere: rows not empty.
Vector KrumScores(const Rows& rows, int byzantine);
// The mean of the `selected` rows of the least scores, equal ones in order; 0
// stands for P - f.
Vector MultiKrum(const Rows& rows, int byzantine, int selected);
// The smoothed Weiszfeld algorithm from rows weighed by the inverse distance to
// the nearest majority; distances count as at least epsilon times the median
// norm.
Vector GeometricMedian(const Rows& rows, int iterations, Real epsilon);
// sum_i ||point - g_i||.
Real SumOfDistances(const Rows& rows, const Vector& point);

enum class Rescale { kNone, kMeanNorm, kMatchMean };
enum class Unsort { kScatter, kGather };

struct AdaconsStep {
  Vector direction;
  Vector alphas;           // normalised, per row
  bool fell_back = false;  // direction is the mean
};

// AdaCons, one step: project the mean on each unit gradient, average the sorted
// projections over steps, put them back (gather: take the entry whose number is
// the row at one's own place), normalise, recombine unit gradients.
// *momentum (sorted, empty at first) advances unless the step fell back.
// REQUIRES: the same number of rows each step.
AdaconsStep Adacons(const Rows& rows, Real beta, Real epsilon, Rescale rescale,
                    Unsort unsort, Vector* momentum);

// The combination of the rows in a rule's first round, with the rule's default
// options: as its definition says, on full vectors. `examples` has one number
// per row. REQUIRES: rows not empty.
using CombineVectors = Vector (*)(const Rows& rows,
                                  const std::vector<double>& examples);

// Null for a rule that is not transcribed.
CombineVectors FindTranscription(const std::string& rule);

}  // namespace reference
}  // namespace agg

#endif  // AGG_TESTS_REFERENCE_COMBINATION_RULES_H_
