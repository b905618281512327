// Loads of 16 bytes of a row, and their elements as doubles. Device code.
#ifndef AGG_KERNELS_CUDA_LOAD_ELEMENTS_CUH_
#define AGG_KERNELS_CUDA_LOAD_ELEMENTS_CUH_

#include <stdint.h>

#include "kernels/cuda/device_ops.cuh"
#include "kernels/narrow_float.h"

namespace agg::cuda {

// 16 bytes of a row in registers.
struct Packed {
  uint32_t words[4];
};

// An element type: bytes per element, elements per load, 4 elements as one word
// of memory, and element `e` of a load. `e` is a constant after unrolling.
struct F32 {
  using Storage = float;
  using Quad = uint4;
  static constexpr int kPerLoad = 4;
  __device__ __forceinline__ static float ToFloat(const Packed& p, int e) {
    return FloatOfBits(p.words[e]);
  }
  __device__ __forceinline__ static float FromStorage(float value) {
    return value;
  }
};

struct Bf16 {
  using Storage = uint16_t;
  using Quad = uint2;
  static constexpr int kPerLoad = 8;
  __device__ __forceinline__ static float ToFloat(const Packed& p, int e) {
    const uint32_t word = p.words[e / 2];
    return FloatOfBits(e % 2 == 0 ? word << 16 : word & 0xffff0000u);
  }
  __device__ __forceinline__ static float FromStorage(uint16_t value) {
    return FloatOfBf16(value);
  }
};

struct F16 {
  using Storage = uint16_t;
  using Quad = uint2;
  static constexpr int kPerLoad = 8;
  __device__ __forceinline__ static float ToFloat(const Packed& p, int e) {
    return FromStorage(static_cast<uint16_t>(p.words[e / 2] >> (e % 2 * 16)));
  }
  __device__ __forceinline__ static float FromStorage(uint16_t bits) {
    return WidenF16(bits);
  }
};

// int8 in blocks of kScaleElements with a float32 scale each
// (kernels/row_format.h). What is loaded has to be multiplied by the scale.
struct I8 {
  using Storage = int8_t;
  using Quad = uint32_t;
  __device__ __forceinline__ static float ToFloat(const Packed& p, int e) {
    return static_cast<int8_t>(p.words[e / 4] >> (e % 4 * 8));
  }
  // Converts exactly. A byte with its sign flipped, put into the mantissa of
  // 2^12, makes it 2^12 + 128 + value: a subtraction instead of two
  // conversions, whose unit is narrower than that of the arithmetic where
  // doubles are fast.
  __device__ __forceinline__ static double ToDouble(const Packed& p, int e) {
    const uint32_t flipped = p.words[e / 4] ^ 0x80808080u;
    const uint32_t high =
        SelectBytes(flipped, 0x40b00000u, 0x7604u + e % 4 * 16);
    return DoubleOfWords(high, 0) - 4224.0;
  }
  __device__ __forceinline__ static float FromStorage(int8_t value) {
    return value;
  }
};

template <class Element>
inline constexpr bool kHasScales = false;
template <>
inline constexpr bool kHasScales<I8> = true;

inline constexpr int kScaleElements = 256;

// --- Host: element types by agg::DType's value ---

// Returns `call(element)`, with an object of the type.
template <class Call>
cudaError_t WithElement(int dtype, const Call& call) {
  switch (dtype) {
    case 1:
      return call(F32());
    case 2:
      return call(Bf16());
    default:
      return call(F16());
  }
}

// Returns `call(element)` as WithElement does, int8 included.
template <class Call>
cudaError_t WithRowElement(int dtype, const Call& call) {
  return dtype == 4 ? call(I8()) : WithElement(dtype, call);
}

// Calls `call` for all types but int8, until one fails.
template <class Call>
cudaError_t WithEachElement(const Call& call) {
  cudaError_t error = cudaSuccess;
  for (int dtype = 1; dtype <= 3 && error == cudaSuccess; ++dtype) {
    error = WithElement(dtype, call);
  }
  return error;
}

// --- Device ---

template <class Element, class Integer>
__device__ __forceinline__ Integer BytesOf(Integer num_elements) {
  return num_elements * static_cast<Integer>(sizeof(typename Element::Storage));
}

// Returns the address of a row's first scale.
__device__ __forceinline__ const float* ScalesAt(const void* row,
                                                 int64_t scale_offset) {
  return reinterpret_cast<const float*>(static_cast<const char*>(row) +
                                        scale_offset);
}

// REQUIRES: `from` is 16-byte aligned and has 16 bytes.
__device__ __forceinline__ Packed LoadPacked(const void* from) {
  const uint4 v = LoadConstant(static_cast<const uint4*>(from));
  return Packed{{v.x, v.y, v.z, v.w}};
}

// Returns a Quad as the beginning of a load.
__device__ __forceinline__ Packed PackedOf(uint4 v) {
  return Packed{{v.x, v.y, v.z, v.w}};
}
__device__ __forceinline__ Packed PackedOf(uint2 v) {
  return Packed{{v.x, v.y, 0u, 0u}};
}
__device__ __forceinline__ Packed PackedOf(uint32_t word) {
  return Packed{{word, 0u, 0u, 0u}};
}

// Whether a thread's elements are finite, as far as there are any: what lies
// beyond the end may have become NaN in a step of infinite rate.
template <int kCount>
__device__ __forceinline__ bool AllFinite(const float (&x)[kCount],
                                          int num_elements) {
  bool finite = true;
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    // The difference is NaN for infinities and NaN, else 0.
    finite = finite && (e >= num_elements || x[e] - x[e] == 0.0f);
  }
  return finite;
}

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_LOAD_ELEMENTS_CUH_
