// Loads N elements of any dtype as doubles, per Highway target.

// Per-target include guard, see Highway's quick reference.
#if defined(AGG_KERNELS_CPU_LOAD_DOUBLE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)  // NOLINT
#ifdef AGG_KERNELS_CPU_LOAD_DOUBLE_INL_H_
#undef AGG_KERNELS_CPU_LOAD_DOUBLE_INL_H_
#else
#define AGG_KERNELS_CPU_LOAD_DOUBLE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/narrow_float.h"

HWY_BEFORE_NAMESPACE();
namespace agg {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The element types: what a row's bytes are, and one element's value. Only
// int8 elements have a scale; LoadDouble is for the others.
struct F32Element {
  using Storage = float;
  static constexpr bool kScaled = false;
  static double Value(float value, double /*scale*/) { return value; }
};
struct Bf16Element {
  using Storage = uint16_t;
  static constexpr bool kScaled = false;
  static double Value(uint16_t bits, double /*scale*/) {
    return FloatOfBf16(bits);
  }
};
struct F16Element {
  using Storage = uint16_t;
  static constexpr bool kScaled = false;
  static double Value(uint16_t bits, double /*scale*/) {
    return FloatOfF16(bits);
  }
};
struct Int8Element {
  using Storage = int8_t;
  static constexpr bool kScaled = true;
  // 24 and 8 bits: exact.
  static double Value(int8_t value, double scale) { return scale * value; }
};

template <class D>
HWY_INLINE hn::Vec<D> LoadDouble(D d, F32Element, const float* from) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), from));
}

template <class D>
HWY_INLINE hn::Vec<D> LoadDouble(D d, Bf16Element, const uint16_t* from) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const hn::Rebind<float, D> df;
  const auto wide = hn::PromoteTo(d32, hn::LoadU(d16, from));
  return hn::PromoteTo(d, hn::BitCast(df, hn::ShiftLeft<16>(wide)));
}

template <class D>
HWY_INLINE hn::Vec<D> LoadDouble(D d, F16Element, const uint16_t* from) {
  const hn::Rebind<float, D> df;
// Highway's emulation of this promotion does not know infinities and NaNs;
// the instruction (F16C) is part of its AVX2 and AVX3 targets.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const hn::Rebind<hwy::float16_t, D> d16;
  const auto half =
      hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from));
  return hn::PromoteTo(d, hn::PromoteTo(df, half));
#else
  float values[hn::MaxLanes(df)];
  for (size_t i = 0; i < hn::Lanes(df); ++i) values[i] = FloatOfF16(from[i]);
  return hn::PromoteTo(d, hn::LoadU(df, values));
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace agg
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
