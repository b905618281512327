// Exact arithmetic on doubles and floats, host and device: error-free
// transformations, and sums kept as a pair hi + lo of about twice the bits.
//
// Sources: Knuth's two-sum (TAOCP 2, 4.2.2), Dekker's fast two-sum and the
// double-double additions of Hida, Li and Bailey (2001, "sloppy" variant). The
// sum of two pairs, or of a pair and a number, is off by at most 4 u^2 times
// |a| + |b|, u being half a unit in the last place of 1: 2^-104 for doubles,
// 2^-46 for floats. A non-finite operand makes the result non-finite (usually
// NaN). REQUIRES: no floating-point contraction.
#ifndef AGG_KERNELS_DOUBLE_PAIR_H_
#define AGG_KERNELS_DOUBLE_PAIR_H_

#include <math.h>

#include "kernels/narrow_float.h"

namespace agg {

// The value hi + lo; |lo| is at most half a unit in the last place of hi.
template <class Real>
struct Pair {
  Real hi = 0;
  Real lo = 0;
};

using DoublePair = Pair<double>;
using FloatPair = Pair<float>;

// a + b exactly.
template <class Real>
AGG_HOST_DEVICE Pair<Real> TwoSum(Real a, Real b) {
  Pair<Real> sum;
  sum.hi = a + b;
  const Real b_part = sum.hi - a;
  sum.lo = (a - (sum.hi - b_part)) + (b - b_part);
  return sum;
}

// a + b exactly. REQUIRES: |a| >= |b|, or a is a multiple of b's last place.
template <class Real>
AGG_HOST_DEVICE Pair<Real> FastTwoSum(Real a, Real b) {
  Pair<Real> sum;
  sum.hi = a + b;
  sum.lo = b - (sum.hi - a);
  return sum;
}

AGG_HOST_DEVICE double FusedMultiplyAdd(double a, double b, double c) {
  return fma(a, b, c);
}
AGG_HOST_DEVICE float FusedMultiplyAdd(float a, float b, float c) {
  return fmaf(a, b, c);
}

// a * b exactly, unless the error underflows: then off by at most half the
// least subnormal.
template <class Real>
AGG_HOST_DEVICE Pair<Real> TwoProduct(Real a, Real b) {
  Pair<Real> product;
  product.hi = a * b;
  product.lo = FusedMultiplyAdd(a, b, -product.hi);
  return product;
}

template <class Real>
AGG_HOST_DEVICE Pair<Real> PairAdd(Pair<Real> a, Real b) {
  const Pair<Real> sum = TwoSum(a.hi, b);
  return FastTwoSum(sum.hi, sum.lo + a.lo);
}

template <class Real>
AGG_HOST_DEVICE Pair<Real> PairAdd(Pair<Real> a, Pair<Real> b) {
  const Pair<Real> sum = TwoSum(a.hi, b.hi);
  return FastTwoSum(sum.hi, sum.lo + (a.lo + b.lo));
}

}  // namespace agg

#endif  // AGG_KERNELS_DOUBLE_PAIR_H_
