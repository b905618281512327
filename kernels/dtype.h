// Element types of gradient rows and published parameters.
#ifndef AGG_KERNELS_DTYPE_H_
#define AGG_KERNELS_DTYPE_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace agg {

// The values are those of agg.v1.DType on the wire.
enum class DType : uint8_t { kF32 = 1, kBF16 = 2, kF16 = 3 };

// Bytes of one element: 4, 2 or 2.
constexpr int64_t DTypeBytes(DType dtype) {
  return dtype == DType::kF32 ? 4 : 2;
}

// "f32", "bf16" or "f16": the spelling of flags, configs and messages.
constexpr absl::string_view DTypeName(DType dtype) {
  return dtype == DType::kF32 ? "f32" : dtype == DType::kBF16 ? "bf16" : "f16";
}

}  // namespace agg

#endif  // AGG_KERNELS_DTYPE_H_
