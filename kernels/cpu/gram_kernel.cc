// The Gram matrix G = R R^T of P rows over one block of elements, on a CPU's
// SIMD units.
//
// What is computed: for each pair of rows i <= j the sum over k of
// row_i[k] row_j[k], in double, kept as 8 lanes (gram_lanes.h), which are added
// up at the end. Compensated: each lane is a pair of doubles.
//
// What a tile is: up to 4 x 4 pairs of rows, whose sums stay in registers while
// the kernel goes along the elements (gram_tiles-inl.h). A triangle is a tile
// on the diagonal of G (rows with themselves), a rectangle one beside it; which
// of them a panel needs is in gram_panel-inl.h.
//
//   rows     how the block is read
//   1 .. 4   one triangle, rows in place
//   5 ..     panels: a few hundred elements of all rows; triangles convert them
//            to double on their way, rectangles read the converted ones
//
// Called by gram.cc, once per block and from any thread; everything that is
// written is in GramBlock. The result has the same bits for every SIMD target:
// neither tiles nor panels change the order of any pair's additions.
//
// Highway compiles the part between HWY_BEFORE_NAMESPACE and
// HWY_AFTER_NAMESPACE once per target (foreach_target.h includes this file
// again); HWY_DYNAMIC_DISPATCH picks one at run time.
#include "kernels/cpu/gram_kernel.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gram_kernel.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include "hwy/highway.h"
#include "kernels/backend.h"
#include "kernels/cpu/gram_lanes.h"
#include "kernels/cpu/gram_layout.h"
#include "kernels/cpu/gram_panel-inl.h"
#include "kernels/cpu/load_double-inl.h"
#include "kernels/double_pair.h"

HWY_BEFORE_NAMESPACE();
namespace agg {
namespace HWY_NAMESPACE {

template <class Element>
void Accumulate(const GramBlock& block, const Source<Element>& source,
                const GramScratch& scratch) {
  if (block.lo != nullptr) {
    AccumulateCompensated(source, block.num_rows, scratch);
  } else if (block.num_rows > kTileRows) {
    AccumulatePlain(source, block.num_rows, scratch);
  } else {
    const LanePointers lanes(scratch.hi_lanes, block.num_rows, 0, 0);
    Triangle<Element, false>(source, 0, block.num_rows, Prefetch(), lanes.at,
                             nullptr);
  }
}

template <class Element>
void AccumulateBlock(const GramBlock& block, const GramScratch& scratch) {
  using Storage = typename Element::Storage;
  const bool in_place = block.num_rows <= kTileRows && block.lo == nullptr;
  const int64_t num_grouped = block.num_elements / kGramLanes * kGramLanes;
  const int64_t panel_elements =
      in_place ? block.num_elements : PanelElements(block.num_rows);
  Source<Element> source;
  source.rows = block.rows;
  source.prefetch_elements = in_place ? 0 : panel_elements;
  for (; source.begin < num_grouped; source.begin += source.num_elements) {
    source.num_elements = std::min(panel_elements, num_grouped - source.begin);
    Accumulate(block, source, scratch);
  }
  const int64_t num_left = block.num_elements - num_grouped;
  if (num_left == 0) return;
  // The last, incomplete group of 8 is copied and filled up with zeros: the
  // rows end there, so that it must not be read in place.
  Storage* const copies = reinterpret_cast<Storage*>(scratch.tail);
  std::fill(copies, copies + block.num_rows * kGramLanes, Storage());
  for (int64_t r = 0; r < block.num_rows; ++r) {
    const Storage* const from =
        reinterpret_cast<const Storage*>(block.rows[r]) + num_grouped;
    std::copy(from, from + num_left, copies + r * kGramLanes);
  }
  source.copies = copies;
  source.num_elements = kGramLanes;
  source.prefetch_elements = 0;
  Accumulate(block, source, scratch);
}

void AccumulateGramBlock(const GramBlock& block, const GramScratch& scratch) {
  switch (block.dtype) {
    case DType::kF32:
      return AccumulateBlock<F32Element>(block, scratch);
    case DType::kBF16:
      return AccumulateBlock<Bf16Element>(block, scratch);
    case DType::kF16:
      return AccumulateBlock<F16Element>(block, scratch);
    case DType::kI8:  // has a kernel of its own
      return;
  }
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace agg
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace agg {
namespace {

HWY_EXPORT(AccumulateGramBlock);
HWY_EXPORT(TargetName);

DoublePair SumOfLanes(const double* hi, const double* lo) {
  DoublePair quarter[4];
  for (int l = 0; l < 4; ++l) {
    quarter[l] =
        PairAdd(DoublePair{hi[l], lo[l]}, DoublePair{hi[l + 4], lo[l + 4]});
  }
  return PairAdd(PairAdd(quarter[0], quarter[2]),
                 PairAdd(quarter[1], quarter[3]));
}

}  // namespace

int64_t GramScratchDoubles(int64_t num_rows) {
  return 2 * kGramLanes * PackedGramSize(num_rows) + kGramLanes * num_rows +
         num_rows * PanelStride(num_rows);
}

void ComputeGramBlock(const GramBlock& block) {
  assert(block.dtype != DType::kI8);
  const int64_t num_pairs = PackedGramSize(block.num_rows);
  GramScratch scratch;
  scratch.hi_lanes = block.scratch;
  scratch.lo_lanes = scratch.hi_lanes + kGramLanes * num_pairs;
  scratch.tail = scratch.lo_lanes + kGramLanes * num_pairs;
  scratch.panel = scratch.tail + kGramLanes * block.num_rows;
  std::fill(scratch.hi_lanes, scratch.tail, 0.0);
  HWY_DYNAMIC_DISPATCH(AccumulateGramBlock)(block, scratch);
  for (int64_t pair = 0; pair < num_pairs; ++pair) {
    const double* const hi = scratch.hi_lanes + kGramLanes * pair;
    if (block.lo == nullptr) {
      block.hi[pair] = SumOfGramLanes(hi);
    } else {
      const DoublePair sum =
          SumOfLanes(hi, scratch.lo_lanes + kGramLanes * pair);
      block.hi[pair] = sum.hi;
      block.lo[pair] = sum.lo;
    }
  }
}

absl::string_view SimdTargetName() {
  return HWY_DYNAMIC_DISPATCH(TargetName)();
}

}  // namespace agg
#endif  // HWY_ONCE
