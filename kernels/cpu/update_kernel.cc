// Compiled once for each instruction set by Highway, which includes this
// file again and again (foreach_target.h) and chooses at run time.
#include "kernels/cpu/update_kernel.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/update_kernel.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/gram_layout.h"
#include "kernels/cpu/gram_tiles-inl.h"
#include "kernels/cpu/load_double-inl.h"
#include "kernels/narrow_float.h"
#include "kernels/row_format.h"
#include "kernels/step_constants.h"
#include "kernels/step_formula.h"

#ifndef AGG_KERNELS_CPU_UPDATE_KERNEL_ONCE_
#define AGG_KERNELS_CPU_UPDATE_KERNEL_ONCE_
namespace agg {

// Elements that pass through the L1 cache together. Measured on a Zen 4 for
// sgd: 1024 are 7% slower at P = 2 to 8, 256 are 27% slower at P = 32.
constexpr int64_t kChunkElements = 512;

// An array that the optimizer does not have stays null.
inline float* At(float* array, int64_t element) {
  return array == nullptr ? nullptr : array + element;
}

// The least bits of a magnitude that is not finite where it is published.
inline int32_t LimitOf(const UpdateBlock& block) {
  constexpr int32_t kInfinityBits = 0x7f800000;
  if (block.narrowed == nullptr) return kInfinityBits;
  return static_cast<int32_t>(block.narrowed_dtype == DType::kBF16
                                  ? kBf16OverflowBits
                                  : kF16OverflowBits);
}

struct NormLanes {
  alignas(64) double parameters[kGramLanes] = {};
  alignas(64) double updates[kGramLanes] = {};
};

}  // namespace agg
#endif  // AGG_KERNELS_CPU_UPDATE_KERNEL_ONCE_

HWY_BEFORE_NAMESPACE();
namespace agg {
namespace HWY_NAMESPACE {

// --- The weighted sum of rows in double. Plain loops that the compiler
// vectorises for the target.

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

// --- Optimizer steps over arrays: the formulas of element_math.h in plain
// loops that the compiler vectorises for the target. Formulas are inlined into
// the loops, and so get the target's instructions; choosing one happens once
// per block and needs none.

using StepFunction = void (*)(const StepConstants& constants,
                              const float* gradient, int64_t num_elements,
                              float* parameters, float* state0, float* state1);

// State arrays that the formula does not have may be null.
template <class Formula>
HWY_NOINLINE void StepChunk(const StepConstants& constants,
                            const float* HWY_RESTRICT gradient,
                            int64_t num_elements,
                            float* HWY_RESTRICT parameters,
                            float* HWY_RESTRICT state0,
                            float* HWY_RESTRICT state1) {
  const StepConstants c = constants;  // may not alias the arrays
  for (int64_t k = 0; k < num_elements; ++k) {
    float parameter = parameters[k];
    float s0 = Formula::kStateArrays > 0 ? state0[k] : 0.0f;
    float s1 = Formula::kStateArrays > 1 ? state1[k] : 0.0f;
    Formula::Apply(c, gradient[k], &parameter, &s0, &s1);
    parameters[k] = parameter;
    if (Formula::kStateArrays > 0) state0[k] = s0;
    if (Formula::kStateArrays > 1) state1[k] = s1;
  }
}

// Visitor of VisitFormula: returns the formula's loop.
struct StepChunkOf {
  template <class Formula>
  StepFunction operator()(Formula /*formula*/) const {
    return &StepChunk<Formula>;
  }
};

inline StepFunction ChooseStep(StepFormula formula) {
  return VisitFormula(formula, StepChunkOf());
}

using DirectionFunction = void (*)(const StepConstants& constants,
                                   const float* gradient, int64_t num_elements,
                                   const float* parameters, const float* state0,
                                   const float* state1, float* directions);

// Writes the directions that a step would take; the state stays as it is.
template <class Formula>
HWY_NOINLINE void DirectChunk(const StepConstants& constants,
                              const float* HWY_RESTRICT gradient,
                              int64_t num_elements,
                              const float* HWY_RESTRICT parameters,
                              const float* HWY_RESTRICT state0,
                              const float* HWY_RESTRICT state1,
                              float* HWY_RESTRICT directions) {
  const StepConstants c = constants;
  for (int64_t k = 0; k < num_elements; ++k) {
    float s0 = Formula::kStateArrays > 0 ? state0[k] : 0.0f;
    float s1 = Formula::kStateArrays > 1 ? state1[k] : 0.0f;
    directions[k] = Formula::Direction(c, gradient[k], parameters[k], &s0, &s1);
  }
}

// Visitor of VisitFormula: returns the loop over directions, or null where the
// norm that is asked for is the gradient's.
struct DirectChunkOf {
  template <class Formula>
  DirectionFunction operator()(Formula /*formula*/) const {
    if constexpr (HasDirection<Formula>::value) {
      return &DirectChunk<Formula>;
    } else {
      return nullptr;
    }
  }
};

inline DirectionFunction ChooseDirection(StepFormula formula) {
  return VisitFormula(formula, DirectChunkOf());
}

HWY_NOINLINE inline void NarrowToBf16(const float* HWY_RESTRICT from,
                                      int64_t num_elements,
                                      uint16_t* HWY_RESTRICT to) {
  for (int64_t k = 0; k < num_elements; ++k) to[k] = Bf16OfFloat(from[k]);
}

HWY_NOINLINE inline void NarrowToF16(const float* HWY_RESTRICT from,
                                     int64_t num_elements,
                                     uint16_t* HWY_RESTRICT to) {
  for (int64_t k = 0; k < num_elements; ++k) to[k] = F16OfFloat(from[k]);
}

// --- A block: chunk by chunk.

void CombineChunk(const UpdateBlock& block, int64_t begin, int64_t num_elements,
                  float* combined) {
  alignas(64) double sums[kChunkElements];
  const auto combine = block.dtype == DType::kF32    ? &CombineRows<F32Element>
                       : block.dtype == DType::kBF16 ? &CombineRows<Bf16Element>
                       : block.dtype == DType::kF16  ? &CombineRows<F16Element>
                                                    : &CombineRows<Int8Element>;
  // What has one scale in each row: all of it but for int8.
  static_assert(kChunkElements % kScaleBlockElements == 0);
  const int64_t step =
      block.dtype == DType::kI8 ? kScaleBlockElements : kChunkElements;
  for (int64_t done = 0; done < num_elements; done += step) {
    combine(block.rows, block.scales, block.coefficients, block.num_rows,
            begin + done, std::min(step, num_elements - done), sums,
            combined + done);
  }
}

void NarrowElements(const float* from, int64_t num_elements, DType dtype,
                    uint16_t* to) {
  if (dtype == DType::kBF16) {
    NarrowToBf16(from, num_elements, to);
  } else {
    NarrowToF16(from, num_elements, to);
  }
}

// Where stepped parameters go besides the master weights.
enum class Publish : uint8_t { kNowhere, kSnapshot, kStreamedSnapshot };

// Copies to the snapshot, and returns whether the bits of all magnitudes are
// below `limit`: they pass by here anyway, so that looking at them costs no
// memory traffic.
template <Publish kPublish>
HWY_NOINLINE bool PublishElements(const float* from, int64_t num_elements,
                                  float* to, int32_t limit) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> bits;
  const int64_t num_lanes = static_cast<int64_t>(hn::Lanes(d));
  // As integers, infinities and NaN are above all finite magnitudes.
  auto largest = hn::Zero(bits);
  int64_t k = 0;
  for (; k + num_lanes <= num_elements; k += num_lanes) {
    const auto values = hn::LoadU(d, from + k);
    if (kPublish == Publish::kStreamedSnapshot) {
      hn::Stream(values, d, to + k);
    } else if (kPublish == Publish::kSnapshot) {
      hn::StoreU(values, d, to + k);
    }
    largest = hn::Max(largest, hn::BitCast(bits, hn::Abs(values)));
  }
  bool finite = hn::GetLane(hn::MaxOfLanes(bits, largest)) < limit;
  for (; k < num_elements; ++k) {
    if (kPublish != Publish::kNowhere) to[k] = from[k];
    finite = finite &&
             static_cast<int32_t>(BitsOfFloat(from[k]) & 0x7fffffffu) < limit;
  }
  return finite;
}

// Steps and publishes chunk by chunk. kCombines: the gradient is what the rows
// combine to, and stays in the L1 cache; else it is in `combined`.
template <bool kCombines>
bool StepElements(const UpdateBlock& block) {
  alignas(64) float own[kCombines ? kChunkElements : 1];
  const StepFunction step = ChooseStep(block.formula);
  const auto publish =
      block.snapshot == nullptr ? &PublishElements<Publish::kNowhere>
      : block.stream_snapshot   ? &PublishElements<Publish::kStreamedSnapshot>
                                : &PublishElements<Publish::kSnapshot>;
  const int32_t limit = LimitOf(block);
  bool finite = true;
  for (int64_t begin = 0; begin < block.num_elements; begin += kChunkElements) {
    const int64_t num_elements =
        std::min(kChunkElements, block.num_elements - begin);
    if (kCombines) CombineChunk(block, begin, num_elements, own);
    const float* const gradient = kCombines ? own : block.combined + begin;
    float* const master = block.master + begin;
    step(block.constants, gradient, num_elements, master,
         At(block.state0, begin), At(block.state1, begin));
    finite &= publish(master, num_elements, At(block.snapshot, begin), limit);
    if (block.narrowed != nullptr) {
      NarrowElements(master, num_elements, block.narrowed_dtype,
                     block.narrowed + begin);
    }
  }
  // Whoever takes the snapshot over must see the streamed stores.
  if (block.stream_snapshot) hwy::FlushStream();
  return finite;
}

bool UpdateElements(const UpdateBlock& block) {
  return StepElements<true>(block);
}

bool StepCombined(const UpdateBlock& block) {
  return StepElements<false>(block);
}

void CombineElements(const UpdateBlock& block) {
  for (int64_t begin = 0; begin < block.num_elements; begin += kChunkElements) {
    CombineChunk(block, begin,
                 std::min(kChunkElements, block.num_elements - begin),
                 block.combined + begin);
  }
}

// Adds squares to 8 lanes. `values` has room to be filled up with zeros.
void AddSquares(float* values, int64_t num_elements, double* lanes) {
  int64_t num_filled = num_elements;
  while (num_filled % kGramLanes != 0) values[num_filled++] = 0.0f;
  const float* const row = values;
  AccumulateTriangle<F32Element, 1, false>(&row, num_filled, Prefetch(), &lanes,
                                           nullptr);
}

void AccumulateNorms(const UpdateBlock& block, NormLanes& lanes) {
  alignas(64) float updates[kChunkElements];
  alignas(64) float parameters[kChunkElements];
  alignas(64) float directions[kChunkElements];
  const DirectionFunction direct = ChooseDirection(block.formula);
  for (int64_t begin = 0; begin < block.num_elements; begin += kChunkElements) {
    const int64_t num_elements =
        std::min(kChunkElements, block.num_elements - begin);
    CombineChunk(block, begin, num_elements, updates);
    std::memcpy(parameters, block.master + begin,
                static_cast<size_t>(num_elements) * sizeof(float));
    AddSquares(parameters, num_elements, lanes.parameters);
    if (direct != nullptr) {
      direct(block.constants, updates, num_elements, parameters,
             At(block.state0, begin), At(block.state1, begin), directions);
      AddSquares(directions, num_elements, lanes.updates);
    } else {
      AddSquares(updates, num_elements, lanes.updates);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace agg
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace agg {
namespace {

HWY_EXPORT(UpdateElements);
HWY_EXPORT(CombineElements);
HWY_EXPORT(StepCombined);
HWY_EXPORT(AccumulateNorms);
HWY_EXPORT(NarrowElements);

}  // namespace

bool ComputeUpdateBlock(const UpdateBlock& block) {
  return HWY_DYNAMIC_DISPATCH(UpdateElements)(block);
}

void ComputeCombineBlock(const UpdateBlock& block) {
  HWY_DYNAMIC_DISPATCH(CombineElements)(block);
}

bool ComputeStepBlock(const UpdateBlock& block) {
  return HWY_DYNAMIC_DISPATCH(StepCombined)(block);
}

RangeNorms ComputeNormsBlock(const UpdateBlock& block) {
  NormLanes lanes;
  HWY_DYNAMIC_DISPATCH(AccumulateNorms)(block, lanes);
  RangeNorms norms;
  norms.parameter_norm_squared = SumOfGramLanes(lanes.parameters);
  norms.update_norm_squared = SumOfGramLanes(lanes.updates);
  return norms;
}

void NarrowBlock(const float* from, int64_t num_elements, DType dtype,
                 uint16_t* to) {
  assert(dtype != DType::kF32);
  HWY_DYNAMIC_DISPATCH(NarrowElements)(from, num_elements, dtype, to);
}

}  // namespace agg
#endif  // HWY_ONCE
