// Rounds float32 gradients to the bytes of the wire (kernels/row_format.h).
// Apart from kernels/ because the client must not depend on a compute backend.
#ifndef AGG_WORKER_CLIENT_ROW_ENCODING_H_
#define AGG_WORKER_CLIENT_ROW_ENCODING_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/dtype.h"

namespace agg {

// What error feedback (error_feedback.h) adds to a gradient before it is
// rounded, and where to put what rounding leaves out. Both empty: no feedback.
struct Residual {
  absl::Span<const float> before;
  absl::Span<float> after;
};

// Values that were finite and not zero, and are not so as sent. (What int8
// rounds to zero beside larger values of its block is no such loss.)
struct EncodingLoss {
  int64_t num_infinite = 0;
  int64_t num_vanished = 0;
};

// Writes `gradient` plus `residual.before` in `dtype`: PayloadBytes(dtype, ..)
// bytes at `to`. Always the same bytes for the same values.
//
// bf16, f16: rounded as kernels/narrow_float.h says.
// int8: of each block of scales the largest magnitude m gives the scale m /
// 127, rounded up to 16 bits, and an element is x * (1 / scale), rounded to
// nearest, ties to even. So values are float32 numbers, and what is left of x
// is exact. A block whose scale would be below 2^-126, float32's least normal
// number, is sent as zeros. One with an infinity or a NaN gets the scale NaN,
// and zeros. What is left in `residual.after` of values that are not finite is
// undefined.
//
// REQUIRES: dtype is not kF32; `to` and `elements` are aligned to 2 bytes; the
// residual is empty or as long as the gradient, and overlaps nothing.
EncodingLoss EncodeFloats(absl::Span<const float> gradient, DType dtype,
                          const Residual& residual, char* to);
// Writes the same to two places, as a slice lies in a row: `scales`, of int8
// alone, else null.
EncodingLoss EncodeFloats(absl::Span<const float> gradient, DType dtype,
                          const Residual& residual, char* scales,
                          char* elements);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_ROW_ENCODING_H_
