// How the elements of a gradient row lie in memory and on the wire, by dtype.
// Pure arithmetic, host alone.
//
// f32, bf16, f16: elements, one behind the other. int8: elements q in blocks of
// kScaleBlockElements, each block with a float32 scale; a value is scale * q,
// exact in double. A slice's blocks are counted from its begin, and the last
// one may be short.
//
//   a slice on the wire: its scales, then its elements
//   a row in memory:     all elements of the layout, then all scales; slices
//                        begin at whole blocks, so that element e has the scale
//                        e / kScaleBlockElements
#ifndef AGG_KERNELS_ROW_FORMAT_H_
#define AGG_KERNELS_ROW_FORMAT_H_

#include <cstdint>

#include "kernels/buffer.h"
#include "kernels/dtype.h"

namespace agg {

// Elements of one scale. Part of the wire format. kernels/README.md (int8) has
// what other sizes would cost.
inline constexpr int64_t kScaleBlockElements = 256;

inline constexpr int64_t kScaleBytes = sizeof(float);

// Scales of a slice of so many elements.
constexpr int64_t NumScales(int64_t num_elements) {
  return (num_elements + kScaleBlockElements - 1) / kScaleBlockElements;
}

// Slices of rows of the dtype begin at multiples of this many elements.
constexpr int64_t LayoutAlignment(DType dtype) {
  return dtype == DType::kI8 ? kScaleBlockElements : kLayoutAlignment;
}

// Bytes of a slice on the wire, and those of them that are scales.
constexpr int64_t ScaleBytes(DType dtype, int64_t num_elements) {
  return dtype == DType::kI8 ? NumScales(num_elements) * kScaleBytes : 0;
}
constexpr int64_t PayloadBytes(DType dtype, int64_t num_elements) {
  return num_elements * DTypeBytes(dtype) + ScaleBytes(dtype, num_elements);
}

// Bytes of a row. REQUIRES: layout_elements is a multiple of
// LayoutAlignment(dtype).
constexpr int64_t RowBytes(DType dtype, int64_t layout_elements) {
  return PayloadBytes(dtype, layout_elements);
}

// Elements that a row of so many bytes has. The inverse of RowBytes.
constexpr int64_t RowElements(DType dtype, int64_t row_bytes) {
  return dtype == DType::kI8 ? row_bytes / (kScaleBlockElements + kScaleBytes) *
                                   kScaleBlockElements
                             : row_bytes / DTypeBytes(dtype);
}

// Where the scale of element `begin` lies in an int8 row of so many bytes.
// REQUIRES: begin is a multiple of kScaleBlockElements.
constexpr int64_t ScaleOffset(int64_t row_bytes, int64_t begin) {
  return RowElements(DType::kI8, row_bytes) +
         begin / kScaleBlockElements * kScaleBytes;
}
inline const float* ScalesAt(const Buffer& row, int64_t begin) {
  return reinterpret_cast<const float*>(row.host() +
                                        ScaleOffset(row.num_bytes(), begin));
}

}  // namespace agg

#endif  // AGG_KERNELS_ROW_FORMAT_H_
