// Loops over the formulas of kernels/narrow_float.h, compiled once for each
// instruction set by Highway, which includes this file again and again
// (foreach_target.h) and chooses at run time. One element at a time cost a
// worker more than the transport saved with half the bytes.
#include "worker_client/float_narrowing.h"

#include <cstddef>

// SSSE3 has nothing for these loops that SSE2 lacks.
#define HWY_DISABLED_TARGETS HWY_SSSE3
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker_client/float_narrowing.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include "hwy/highway.h"
#include "kernels/narrow_float.h"
#include "server/base/dcheck.h"

HWY_BEFORE_NAMESPACE();
namespace agg {
namespace HWY_NAMESPACE {

void NarrowToBf16(const float* HWY_RESTRICT from, size_t size,
                  uint16_t* HWY_RESTRICT to) {
  for (size_t i = 0; i < size; ++i) to[i] = Bf16OfFloat(from[i]);
}

void NarrowToF16(const float* HWY_RESTRICT from, size_t size,
                 uint16_t* HWY_RESTRICT to) {
  for (size_t i = 0; i < size; ++i) to[i] = F16OfFloat(from[i]);
}

void WidenBf16(const uint16_t* HWY_RESTRICT from, size_t size,
               float* HWY_RESTRICT to) {
  for (size_t i = 0; i < size; ++i) to[i] = FloatOfBf16(from[i]);
}

void WidenF16(const uint16_t* HWY_RESTRICT from, size_t size,
              float* HWY_RESTRICT to) {
  for (size_t i = 0; i < size; ++i) to[i] = FloatOfF16(from[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace agg
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace agg {
namespace {

HWY_EXPORT(NarrowToBf16);
HWY_EXPORT(NarrowToF16);
HWY_EXPORT(WidenBf16);
HWY_EXPORT(WidenF16);

}  // namespace

void NarrowFloats(absl::Span<const float> from, DType dtype,
                  absl::Span<uint16_t> to) {
  AGG_DCHECK(dtype == DType::kBF16 || dtype == DType::kF16);
  AGG_DCHECK(from.size() == to.size());
  if (dtype == DType::kBF16) {
    HWY_DYNAMIC_DISPATCH(NarrowToBf16)(from.data(), from.size(), to.data());
  } else {
    HWY_DYNAMIC_DISPATCH(NarrowToF16)(from.data(), from.size(), to.data());
  }
}

void WidenFloats(absl::Span<const uint16_t> from, DType dtype,
                 absl::Span<float> to) {
  AGG_DCHECK(dtype == DType::kBF16 || dtype == DType::kF16);
  AGG_DCHECK(from.size() == to.size());
  if (dtype == DType::kBF16) {
    HWY_DYNAMIC_DISPATCH(WidenBf16)(from.data(), from.size(), to.data());
  } else {
    HWY_DYNAMIC_DISPATCH(WidenF16)(from.data(), from.size(), to.data());
  }
}

}  // namespace agg
#endif  // HWY_ONCE
