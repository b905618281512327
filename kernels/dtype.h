// Element types of gradient rows and published parameters.
#ifndef AGG_KERNELS_DTYPE_H_
#define AGG_KERNELS_DTYPE_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace agg {

// The values are those of agg.v1.DType on the wire. kI8 is for rows alone:
// elements in blocks, each with a scale (row_format.h).
enum class DType : uint8_t { kF32 = 1, kBF16 = 2, kF16 = 3, kI8 = 4 };

// Bytes of one element: 4, 2, 2 or 1. What rows and payloads take is in
// row_format.h, since blocks of kI8 have scales, too.
constexpr int64_t DTypeBytes(DType dtype) {
  return dtype == DType::kF32 ? 4 : dtype == DType::kI8 ? 1 : 2;
}

// "f32", "bf16", "f16" or "int8": the spelling of flags, configs and messages.
constexpr absl::string_view DTypeName(DType dtype) {
  return dtype == DType::kF32    ? "f32"
         : dtype == DType::kBF16 ? "bf16"
         : dtype == DType::kF16  ? "f16"
                                 : "int8";
}

}  // namespace agg

#endif  // AGG_KERNELS_DTYPE_H_
