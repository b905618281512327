// The weighted sum of rows in double, per Highway target. Plain loops that
// the compiler vectorises for the target.

#if defined(AGG_KERNELS_CPU_COMBINE_ROWS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)  // NOLINT
#ifdef AGG_KERNELS_CPU_COMBINE_ROWS_INL_H_
#undef AGG_KERNELS_CPU_COMBINE_ROWS_INL_H_
#else
#define AGG_KERNELS_CPU_COMBINE_ROWS_INL_H_
#endif

#include <cassert>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/load_double-inl.h"
#include "kernels/row_format.h"

HWY_BEFORE_NAMESPACE();
namespace agg {
namespace HWY_NAMESPACE {

// Rows to add at a time, at most: four quarter the traffic of `sums` through
// the L1 cache.
inline constexpr int64_t kRowsAtOnce = 4;

// Elements of int8 rows that are fetched ahead.
inline constexpr int64_t kAheadElements = 1024;

// Some of the rows, from an element on, with what each is multiplied by.
template <class Element>
struct SomeRows {
  const typename Element::Storage* rows[kRowsAtOnce] = {};
  double scales[kRowsAtOnce] = {};  // if Element::kScaled
  const double* coefficients = nullptr;
};

// sums <- fma(c[R-1], row[R-1], .. fma(c[0], row[0], sums)); kFirst: from
// zero; kLast: rounded once to float32 into `combined` instead.
template <class Element, int R, bool kFirst, bool kLast>
HWY_NOINLINE void AddRows(const SomeRows<Element>& some, int64_t num_elements,
                          double* HWY_RESTRICT sums,
                          float* HWY_RESTRICT combined) {
  const auto* HWY_RESTRICT row0 = some.rows[0];
  const auto* HWY_RESTRICT row1 = some.rows[R > 1 ? 1 : 0];
  const auto* HWY_RESTRICT row2 = some.rows[R > 2 ? 2 : 0];
  const auto* HWY_RESTRICT row3 = some.rows[R > 3 ? 3 : 0];
  const double s0 = some.scales[0], s1 = some.scales[1];
  const double s2 = some.scales[2], s3 = some.scales[3];
  const double c0 = some.coefficients[0];
  const double c1 = some.coefficients[R > 1 ? 1 : 0];
  const double c2 = some.coefficients[R > 2 ? 2 : 0];
  const double c3 = some.coefficients[R > 3 ? 3 : 0];
  for (int64_t k = 0; k < num_elements; ++k) {
    double sum = kFirst ? 0.0 : sums[k];
    sum = __builtin_fma(c0, Element::Value(row0[k], s0), sum);
    if (R > 1) sum = __builtin_fma(c1, Element::Value(row1[k], s1), sum);
    if (R > 2) sum = __builtin_fma(c2, Element::Value(row2[k], s2), sum);
    if (R > 3) sum = __builtin_fma(c3, Element::Value(row3[k], s3), sum);
    if (kLast) {
      combined[k] = static_cast<float>(sum);
    } else {
      sums[k] = sum;
    }
  }
}

template <class Element, int R>
HWY_INLINE void AddSomeRows(const SomeRows<Element>& some, int64_t num_elements,
                            bool first, bool last, double* sums,
                            float* combined) {
  const auto add = first ? (last ? &AddRows<Element, R, true, true>
                                 : &AddRows<Element, R, true, false>)
                         : (last ? &AddRows<Element, R, false, true>
                                 : &AddRows<Element, R, false, false>);
  add(some, num_elements, sums, combined);
}

// Elements [begin, begin + num_elements) of all rows, for int8 of one block of
// scales; `sums` is scratch for as many doubles. `scales` is not read for other
// types. REQUIRES: num_rows >= 1.
template <class Element>
HWY_NOINLINE void CombineRows(const char* const* rows,
                              const float* const* scales,
                              const double* coefficients, int64_t num_rows,
                              int64_t begin, int64_t num_elements, double* sums,
                              float* combined) {
  assert(num_rows >= 1);
  using Storage = typename Element::Storage;
  for (int64_t r = 0; r < num_rows; r += kRowsAtOnce) {
    const int64_t num_left = num_rows - r;
    SomeRows<Element> some;
    some.coefficients = coefficients + r;
    for (int64_t i = 0; i < kRowsAtOnce && i < num_left; ++i) {
      some.rows[i] = reinterpret_cast<const Storage*>(rows[r + i]) + begin;
      if (Element::kScaled) {
        some.scales[i] = scales[r + i][begin / kScaleBlockElements];
        // Hardware follows many rows of so few bytes badly: without this an
        // Update of 32 rows took more than twice the time on a Zen 4.
        const auto* const ahead =
            reinterpret_cast<const char*>(some.rows[i] + kAheadElements);
        for (int64_t line = 0; line < kScaleBlockElements; line += 64) {
          __builtin_prefetch(ahead + line, 0, 3);
        }
      }
    }
    const auto add = num_left == 1   ? &AddSomeRows<Element, 1>
                     : num_left == 2 ? &AddSomeRows<Element, 2>
                     : num_left == 3 ? &AddSomeRows<Element, 3>
                                     : &AddSomeRows<Element, 4>;
    add(some, num_elements, r == 0, num_left <= kRowsAtOnce, sums, combined);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace agg
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
