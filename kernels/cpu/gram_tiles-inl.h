// Register tiles of the Gram kernel, per Highway target.
//
// A tile accumulates R x C pairs over some groups of 8 elements in registers.
// Its shape is free: it does not change the order of any pair's additions.
// 4 x 4 pairs need 16 accumulators of 8 lanes: half of AVX-512's registers.
// A target with N < 8 lanes goes over the elements 8 / N times, each time for
// N of the 8 lanes, so that its accumulators stay in registers, too.

#if defined(AGG_KERNELS_CPU_GRAM_TILES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)  // NOLINT
#ifdef AGG_KERNELS_CPU_GRAM_TILES_INL_H_
#undef AGG_KERNELS_CPU_GRAM_TILES_INL_H_
#else
#define AGG_KERNELS_CPU_GRAM_TILES_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/gram_lanes.h"
#include "kernels/cpu/load_double-inl.h"

HWY_BEFORE_NAMESPACE();
namespace agg {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using LaneTag = hn::CappedTag<double, kGramLanes>;
using LaneVec = hn::Vec<LaneTag>;

// Rows that were converted to double before.
struct F64Element {
  using Storage = double;
  static double ToDouble(double value) { return value; }
};
template <class D>
HWY_INLINE hn::Vec<D> LoadDouble(D d, F64Element, const double* from) {
  return hn::LoadU(d, from);
}

// Accumulates a[r] * b[c] into the 8 lanes at lanes[r] + 8 * c; of a triangle
// (b == a) only c >= r. REQUIRES: num_elements % 8 == 0.
template <class Element, int R, int C, bool kTriangle>
HWY_NOINLINE void AccumulateTile(
    const typename Element::Storage* const* a,
    const typename Element::Storage* const* b, int64_t num_elements,
    double* const* lanes) {
  const LaneTag d;
  constexpr int64_t kVectorLanes = hn::MaxLanes(LaneTag());
  for (int64_t first = 0; first < kGramLanes; first += kVectorLanes) {
    LaneVec sums[R][C];
    for (int r = 0; r < R; ++r) {
      for (int c = kTriangle ? r : 0; c < C; ++c) {
        sums[r][c] = hn::LoadU(d, lanes[r] + kGramLanes * c + first);
      }
    }
    for (int64_t k = first; k < num_elements; k += kGramLanes) {
      LaneVec column[C];
      for (int c = 0; c < C; ++c) {
        column[c] = LoadDouble(d, Element(), b[c] + k);
      }
      for (int r = 0; r < R; ++r) {
        const LaneVec row =
            kTriangle ? column[r] : LoadDouble(d, Element(), a[r] + k);
        for (int c = kTriangle ? r : 0; c < C; ++c) {
          sums[r][c] = hn::MulAdd(row, column[c], sums[r][c]);
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int c = kTriangle ? r : 0; c < C; ++c) {
        hn::StoreU(sums[r][c], d, lanes[r] + kGramLanes * c + first);
      }
    }
  }
}

// The same for one row, in pairs: products are exact, every addition is a
// two-sum, and each pair is renormalised (PairAdd of double_pair.h).
template <int C>
HWY_NOINLINE void AccumulatePairs(const double* a, const double* const* b,
                                  int64_t num_elements, double* hi_lanes,
                                  double* lo_lanes) {
  const LaneTag d;
  constexpr int64_t kVectorLanes = hn::MaxLanes(LaneTag());
  for (int64_t first = 0; first < kGramLanes; first += kVectorLanes) {
    LaneVec hi[C];
    LaneVec lo[C];
    for (int c = 0; c < C; ++c) {
      hi[c] = hn::LoadU(d, hi_lanes + kGramLanes * c + first);
      lo[c] = hn::LoadU(d, lo_lanes + kGramLanes * c + first);
    }
    for (int64_t k = first; k < num_elements; k += kGramLanes) {
      const LaneVec row = hn::LoadU(d, a + k);
      for (int c = 0; c < C; ++c) {
        const LaneVec product = hn::Mul(row, hn::LoadU(d, b[c] + k));
        const LaneVec sum = hn::Add(hi[c], product);
        const LaneVec part = hn::Sub(sum, hi[c]);
        const LaneVec error = hn::Add(hn::Sub(hi[c], hn::Sub(sum, part)),
                                      hn::Sub(product, part));
        const LaneVec low = hn::Add(error, lo[c]);
        hi[c] = hn::Add(sum, low);
        lo[c] = hn::Sub(low, hn::Sub(hi[c], sum));
      }
    }
    for (int c = 0; c < C; ++c) {
      hn::StoreU(hi[c], d, hi_lanes + kGramLanes * c + first);
      hn::StoreU(lo[c], d, lo_lanes + kGramLanes * c + first);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace agg
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
