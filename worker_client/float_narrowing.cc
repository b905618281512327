// Loops over the formulas of kernels/narrow_float.h.
#include "worker_client/float_narrowing.h"

#include <cstddef>

#include "kernels/narrow_float.h"

namespace agg {

void NarrowFloats(absl::Span<const float> from, DType dtype,
                  absl::Span<uint16_t> to) {
  if (dtype == DType::kBF16) {
    for (size_t i = 0; i < from.size(); ++i) to[i] = Bf16OfFloat(from[i]);
  } else {
    for (size_t i = 0; i < from.size(); ++i) to[i] = F16OfFloat(from[i]);
  }
}

void WidenFloats(absl::Span<const uint16_t> from, DType dtype,
                 absl::Span<float> to) {
  if (dtype == DType::kBF16) {
    for (size_t i = 0; i < from.size(); ++i) to[i] = FloatOfBf16(from[i]);
  } else {
    for (size_t i = 0; i < from.size(); ++i) to[i] = FloatOfF16(from[i]);
  }
}

}  // namespace agg
