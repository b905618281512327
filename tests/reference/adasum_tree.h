// Adasum's tree on the vectors themselves, as Horovod's recursive pairing.
#ifndef AGG_TESTS_REFERENCE_ADASUM_TREE_H_
#define AGG_TESTS_REFERENCE_ADASUM_TREE_H_

#include "tests/reference/vectors.h"

namespace agg {
namespace reference {

// (1 - dot/(2 asq)) a + (1 - dot/(2 bsq)) b; a side whose squared norm is below
// sqrt(DBL_MIN) has coefficient 1 (horovod/common/ops/adasum/adasum.h).
Vector AdasumPair(const Vector& a, const Vector& b);

// Level L = 1, 2, 4, ...: rank r meets r XOR L; a rank with no partner passes
// its vector up. REQUIRES: rows not empty.
Vector AdasumTree(const Rows& rows);

// Adasum's tree with each side weighted by its share of nonzero leaves.
Vector AdasumCountedTree(const Rows& rows);

}  // namespace reference
}  // namespace agg

#endif  // AGG_TESTS_REFERENCE_ADASUM_TREE_H_
