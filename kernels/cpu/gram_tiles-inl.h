// Register tiles of the Gram kernel (gram_kernel.cc), per Highway target.
//
// A tile is R x C pairs of rows, R and C up to 4, whose sums are kept in
// registers over some groups of 8 elements: a row that is loaded once is used
// in up to 4 products.
//
//   function             the pairs                          elements are read
//   AccumulateTriangle   R rows with each other, r <= c     from the rows
//   AccumulateRectangle  4 rows with C other rows           from the panel
//   AccumulatePairs      1 row with C rows, compensated     from the panel
//
// The caller loads the sums of before into `lanes` and finds the new ones
// there. A tile's shape is free: it does not change the order of any pair's
// additions. 4 x 4 pairs need 16 accumulators of 8 lanes: half of AVX-512's
// registers. A target with N < 8 lanes goes over the elements 8 / N times, each
// time for N of the 8 lanes, so that its accumulators stay in registers, too.

#if defined(AGG_KERNELS_CPU_GRAM_TILES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)  // NOLINT
#ifdef AGG_KERNELS_CPU_GRAM_TILES_INL_H_
#undef AGG_KERNELS_CPU_GRAM_TILES_INL_H_
#else
#define AGG_KERNELS_CPU_GRAM_TILES_INL_H_
#endif

#include <cassert>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/gram_layout.h"
#include "kernels/cpu/load_double-inl.h"

HWY_BEFORE_NAMESPACE();
namespace agg {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using LaneTag = hn::CappedTag<double, kGramLanes>;
using LaneVec = hn::Vec<LaneTag>;

// Elements that a tile fetches into the L2 cache while it computes, for the
// panel to come: at[i] + k * element_bytes for each k of its loop. Spread over
// all tiles, since fetching in the triangles alone left the memory idle during
// the rectangles.
struct Prefetch {
  const char* at[3] = {};
  int64_t element_bytes = 0;  // 0: nothing to fetch
};

HWY_INLINE void PrefetchGroup(const Prefetch& prefetch, int64_t k) {
  const int64_t offset = k * prefetch.element_bytes;
  __builtin_prefetch(prefetch.at[0] + offset, 0, 2);
  __builtin_prefetch(prefetch.at[1] + offset, 0, 2);
  __builtin_prefetch(prefetch.at[2] + offset, 0, 2);
}

// Accumulates row[r] * row[c], c >= r, into the 8 lanes at lanes[r] + 8 * c.
// kStore: also writes the converted elements to panel[r], for the rectangles
// to come: the stores hide behind the products, as a conversion of its own did
// not (it took 29% of the time at P = 8). REQUIRES: num_elements % 8 == 0.
template <class Element, int R, bool kStore>
HWY_NOINLINE void AccumulateTriangle(
    const typename Element::Storage* const* rows, int64_t num_elements,
    const Prefetch& prefetch, double* const* lanes, double* const* panel) {
  assert(num_elements % 8 == 0);
  const LaneTag d;
  constexpr int64_t kVectorLanes = hn::MaxLanes(LaneTag());
  const typename Element::Storage* from[R];  // kept in registers
  double* to[R];
  const Prefetch ahead = prefetch;
  for (int r = 0; r < R; ++r) {
    from[r] = rows[r];
    to[r] = kStore ? panel[r] : nullptr;
  }
  for (int64_t first = 0; first < kGramLanes; first += kVectorLanes) {
    LaneVec sums[R][R];
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < R; ++c) {
        if (c < r) continue;  // constant bounds: registers, not an array
        sums[r][c] = hn::LoadU(d, lanes[r] + kGramLanes * c + first);
      }
    }
    for (int64_t k = first; k < num_elements; k += kGramLanes) {
      if (kStore) PrefetchGroup(ahead, k);
      LaneVec row[R];
      for (int r = 0; r < R; ++r) {
        row[r] = LoadDouble(d, Element(), from[r] + k);
        // Fetches the next elements from the L2 cache: 5% at P = 8.
        if (kStore) __builtin_prefetch(from[r] + k + 8 * kGramLanes, 0, 3);
        if (kStore) hn::StoreU(row[r], d, to[r] + k);
      }
      for (int r = 0; r < R; ++r) {
        for (int c = 0; c < R; ++c) {
          if (c < r) continue;
          sums[r][c] = hn::MulAdd(row[r], row[c], sums[r][c]);
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < R; ++c) {
        if (c < r) continue;
        hn::StoreU(sums[r][c], d, lanes[r] + kGramLanes * c + first);
      }
    }
  }
}

// Accumulates row[r] * column[c] of 4 x C converted rows.
template <int C>
HWY_NOINLINE void AccumulateRectangle(const double* const* rows,
                                      const double* const* columns,
                                      int64_t num_elements,
                                      const Prefetch& prefetch,
                                      double* const* lanes) {
  constexpr int kRows = 4;
  const Prefetch ahead = prefetch;
  const LaneTag d;
  constexpr int64_t kVectorLanes = hn::MaxLanes(LaneTag());
  for (int64_t first = 0; first < kGramLanes; first += kVectorLanes) {
    LaneVec sums[kRows][C];
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < C; ++c) {
        sums[r][c] = hn::LoadU(d, lanes[r] + kGramLanes * c + first);
      }
    }
    for (int64_t k = first; k < num_elements; k += kGramLanes) {
      PrefetchGroup(ahead, k);
      LaneVec column[C];
      for (int c = 0; c < C; ++c) column[c] = hn::LoadU(d, columns[c] + k);
      for (int r = 0; r < kRows; ++r) {
        const LaneVec row = hn::LoadU(d, rows[r] + k);
        for (int c = 0; c < C; ++c) {
          sums[r][c] = hn::MulAdd(row, column[c], sums[r][c]);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < C; ++c) {
        hn::StoreU(sums[r][c], d, lanes[r] + kGramLanes * c + first);
      }
    }
  }
}

// Accumulates row * column[c] in pairs hi + lo: products are exact, every
// addition is a two-sum, and each pair is renormalised (PairAdd of
// double_pair.h).
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
        const LaneVec error =
            hn::Add(hn::Sub(hi[c], hn::Sub(sum, part)), hn::Sub(product, part));
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
