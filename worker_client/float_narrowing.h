// Converts arrays of float32 to the 16-bit types of the wire and back. Apart
// from kernels/ because the client must not depend on a compute backend.
#ifndef AGG_WORKER_CLIENT_FLOAT_NARROWING_H_
#define AGG_WORKER_CLIENT_FLOAT_NARROWING_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/dtype.h"

namespace agg {

// Rounds as kernels/narrow_float.h says.
// REQUIRES: dtype is kBF16 or kF16, the spans have the same length.
void NarrowFloats(absl::Span<const float> from, DType dtype,
                  absl::Span<uint16_t> to);

// Exact. REQUIRES: as NarrowFloats.
void WidenFloats(absl::Span<const uint16_t> from, DType dtype,
                 absl::Span<float> to);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_FLOAT_NARROWING_H_
