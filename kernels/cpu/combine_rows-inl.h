// The weighted sum of rows in double, per Highway target. Plain loops that
// the compiler vectorises for the target.

#if defined(AGG_KERNELS_CPU_COMBINE_ROWS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)  // NOLINT
#ifdef AGG_KERNELS_CPU_COMBINE_ROWS_INL_H_
#undef AGG_KERNELS_CPU_COMBINE_ROWS_INL_H_
#else
#define AGG_KERNELS_CPU_COMBINE_ROWS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/load_double-inl.h"

HWY_BEFORE_NAMESPACE();
namespace agg {
namespace HWY_NAMESPACE {

// sums <- fma(c[R-1], row[R-1], .. fma(c[0], row[0], sums)); kFirst: from
// zero; kLast: rounded once to float32 into `combined` instead. Four rows at a
// time, since that quarters the traffic of `sums` through the L1 cache.
template <class Element, int R, bool kFirst, bool kLast>
HWY_NOINLINE void AddRows(const typename Element::Storage* const* rows,
                          const double* coefficients, int64_t num_elements,
                          double* HWY_RESTRICT sums,
                          float* HWY_RESTRICT combined) {
  const auto* HWY_RESTRICT row0 = rows[0];
  const auto* HWY_RESTRICT row1 = rows[R > 1 ? 1 : 0];
  const auto* HWY_RESTRICT row2 = rows[R > 2 ? 2 : 0];
  const auto* HWY_RESTRICT row3 = rows[R > 3 ? 3 : 0];
  const double c0 = coefficients[0];
  const double c1 = coefficients[R > 1 ? 1 : 0];
  const double c2 = coefficients[R > 2 ? 2 : 0];
  const double c3 = coefficients[R > 3 ? 3 : 0];
  for (int64_t k = 0; k < num_elements; ++k) {
    double sum = kFirst ? 0.0 : sums[k];
    sum = __builtin_fma(c0, Element::ToDouble(row0[k]), sum);
    if (R > 1) sum = __builtin_fma(c1, Element::ToDouble(row1[k]), sum);
    if (R > 2) sum = __builtin_fma(c2, Element::ToDouble(row2[k]), sum);
    if (R > 3) sum = __builtin_fma(c3, Element::ToDouble(row3[k]), sum);
    if (kLast) {
      combined[k] = static_cast<float>(sum);
    } else {
      sums[k] = sum;
    }
  }
}

template <class Element, int R>
HWY_INLINE void AddSomeRows(const typename Element::Storage* const* rows,
                            const double* coefficients, int64_t num_elements,
                            bool first, bool last, double* sums,
                            float* combined) {
  const auto add = first ? (last ? &AddRows<Element, R, true, true>
                                 : &AddRows<Element, R, true, false>)
                         : (last ? &AddRows<Element, R, false, true>
                                 : &AddRows<Element, R, false, false>);
  add(rows, coefficients, num_elements, sums, combined);
}

// Elements [begin, begin + num_elements) of all rows; `sums` is scratch for
// as many doubles. REQUIRES: num_rows >= 1.
template <class Element>
HWY_NOINLINE void CombineRows(const char* const* rows,
                              const double* coefficients, int64_t num_rows,
                              int64_t begin, int64_t num_elements, double* sums,
                              float* combined) {
  using Storage = typename Element::Storage;
  for (int64_t r = 0; r < num_rows; r += 4) {
    const int64_t num_left = num_rows - r;
    const Storage* some[4] = {};
    for (int64_t i = 0; i < 4 && i < num_left; ++i) {
      some[i] = reinterpret_cast<const Storage*>(rows[r + i]) + begin;
    }
    const auto add = num_left == 1   ? &AddSomeRows<Element, 1>
                     : num_left == 2 ? &AddSomeRows<Element, 2>
                     : num_left == 3 ? &AddSomeRows<Element, 3>
                                     : &AddSomeRows<Element, 4>;
    add(some, coefficients + r, num_elements, r == 0, num_left <= 4, sums,
        combined);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace agg
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
