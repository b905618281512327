// Arrays of float32 from and to the 16-bit types of the wire.
#ifndef AGG_WORKER_CLIENT_FLOAT_NARROWING_H_
#define AGG_WORKER_CLIENT_FLOAT_NARROWING_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/dtype.h"

namespace agg {

// By the rules of kernels/narrow_float.h.
// REQUIRES: dtype is kBF16 or kF16, the spans have the same length.
void NarrowFloats(absl::Span<const float> from, DType dtype,
                  absl::Span<uint16_t> to);

// Exact. REQUIRES as above.
void WidenFloats(absl::Span<const uint16_t> from, DType dtype,
                 absl::Span<float> to);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_FLOAT_NARROWING_H_
