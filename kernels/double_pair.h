// Exact arithmetic on doubles, host and device: error-free transformations
// and sums kept as a pair hi + lo of about 106 bits.
//
// Sources: Knuth's two-sum (TAOCP 2, 4.2.2), Dekker's fast two-sum and the
// double-double additions of Hida, Li and Bailey (2001, "sloppy" variant whose
// error is bounded by 2^-104 of |a| + |b|). A non-finite operand makes the
// result non-finite (usually NaN). REQUIRES: no floating-point contraction.
#ifndef AGG_KERNELS_DOUBLE_PAIR_H_
#define AGG_KERNELS_DOUBLE_PAIR_H_

#include <math.h>

#include "kernels/narrow_float.h"

namespace agg {

// The value hi + lo; |lo| is at most half a unit in the last place of hi.
struct DoublePair {
  double hi = 0.0;
  double lo = 0.0;
};

// a + b exactly.
AGG_HOST_DEVICE DoublePair TwoSum(double a, double b) {
  DoublePair sum;
  sum.hi = a + b;
  const double b_part = sum.hi - a;
  sum.lo = (a - (sum.hi - b_part)) + (b - b_part);
  return sum;
}

// a + b exactly. REQUIRES: |a| >= |b| or a == 0.
AGG_HOST_DEVICE DoublePair FastTwoSum(double a, double b) {
  DoublePair sum;
  sum.hi = a + b;
  sum.lo = b - (sum.hi - a);
  return sum;
}

// a * b exactly, unless the error underflows.
AGG_HOST_DEVICE DoublePair TwoProduct(double a, double b) {
  DoublePair product;
  product.hi = a * b;
  product.lo = fma(a, b, -product.hi);
  return product;
}

AGG_HOST_DEVICE DoublePair PairAdd(DoublePair a, double b) {
  const DoublePair sum = TwoSum(a.hi, b);
  return FastTwoSum(sum.hi, sum.lo + a.lo);
}

AGG_HOST_DEVICE DoublePair PairAdd(DoublePair a, DoublePair b) {
  const DoublePair sum = TwoSum(a.hi, b.hi);
  return FastTwoSum(sum.hi, sum.lo + (a.lo + b.lo));
}

}  // namespace agg

#endif  // AGG_KERNELS_DOUBLE_PAIR_H_
