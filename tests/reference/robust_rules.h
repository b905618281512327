// Krum, multi-Krum and the geometric median by their definitions: distances
// between vectors.
#ifndef AGG_TESTS_REFERENCE_ROBUST_RULES_H_
#define AGG_TESTS_REFERENCE_ROBUST_RULES_H_

#include <vector>

#include "tests/reference/vectors.h"

namespace agg {
namespace reference {

// Of each row the sum of its P - f - 2 least squared distances to others, f
// lowered to what 2 f + 3 <= P allows, and at least one distance (P > 1).
// REQUIRES everywhere: rows not empty.
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

}  // namespace reference
}  // namespace agg

#endif  // AGG_TESTS_REFERENCE_ROBUST_RULES_H_
