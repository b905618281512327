// Conversions between float32 and the two 16-bit formats, host and device.
//
// Both formats are IEEE 754 layouts: bf16 has float32's 8 exponent bits and 7
// mantissa bits, f16 has 5 and 10, with subnormals. Narrowing rounds to
// nearest, ties to even, in one rounding; values beyond the format's range
// become infinity; a NaN stays a NaN, made quiet, with its sign and the upper
// bits of its payload. Widening is exact.
//
// Integer operations and one float addition, without branches, so that loops
// over them vectorise. REQUIRES: round-to-nearest mode (every host's default).
//
// Formula of the f16 subnormals (adding 0.5, whose unit in the last place is
// that of an f16 subnormal, lets the adder round): F. Giesen, "Float->half
// conversions" (2012, public domain), checked exhaustively by the tests.
#ifndef AGG_KERNELS_NARROW_FLOAT_H_
#define AGG_KERNELS_NARROW_FLOAT_H_

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define AGG_HOST_DEVICE __host__ __device__ __forceinline__
#else
// Always inlined, so that a caller's SIMD target and flags apply.
#define AGG_HOST_DEVICE inline __attribute__((always_inline))
#endif

namespace agg {

// Bits of a float32's magnitude: of the least one that becomes infinity, and of
// the largest one that becomes zero (half of the least subnormal).
constexpr uint32_t kBf16OverflowBits = 0x7f7f8000u;
constexpr uint32_t kF16OverflowBits =
    0x477ff000u;  // 65520 = 65504 + half a unit
constexpr uint32_t kBf16VanishBits = 0x00008000u;
constexpr uint32_t kF16VanishBits = 0x33000000u;  // 2^-25

AGG_HOST_DEVICE uint32_t BitsOfFloat(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

AGG_HOST_DEVICE float FloatOfBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

AGG_HOST_DEVICE float FloatOfBf16(uint16_t bf16) {
  return FloatOfBits(static_cast<uint32_t>(bf16) << 16);
}

AGG_HOST_DEVICE uint16_t Bf16OfFloat(float value) {
  const uint32_t bits = BitsOfFloat(value);
  const uint32_t odd = (bits >> 16) & 1u;
  const uint32_t rounded = (bits + 0x7fffu + odd) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40u;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>(is_nan ? quiet : rounded);
}

AGG_HOST_DEVICE float FloatOfF16(uint16_t f16) {
  constexpr uint32_t kRebias = 112u << 23;  // 127 - 15
  const uint32_t sign = static_cast<uint32_t>(f16 & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(f16 & 0x7fffu) << 13;
  const uint32_t normal = magnitude + kRebias;
  // 2^-14 * (1 + m / 1024) - 2^-14: exact, without subnormal operands.
  const uint32_t subnormal =
      BitsOfFloat(FloatOfBits(normal + (1u << 23)) - FloatOfBits(113u << 23));
  const uint32_t quiet = magnitude > (31u << 23) ? 0x400000u : 0u;
  const uint32_t special = (magnitude + 2u * kRebias) | quiet;
  const uint32_t finite = magnitude < (1u << 23) ? subnormal : normal;
  return FloatOfBits(sign | (magnitude >= (31u << 23) ? special : finite));
}

AGG_HOST_DEVICE uint16_t F16OfFloat(float value) {
  constexpr uint32_t kHalf = 0x3f000000u;           // 0.5f
  constexpr uint32_t kSmallestNormal = 113u << 23;  // 2^-14
  const uint32_t bits = BitsOfFloat(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t odd = (magnitude >> 13) & 1u;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + odd) >> 13;
  const uint32_t subnormal =
      BitsOfFloat(FloatOfBits(magnitude) + FloatOfBits(kHalf)) - kHalf;
  const uint32_t quiet = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  const uint32_t finite = magnitude < kSmallestNormal ? subnormal : normal;
  const uint32_t large = magnitude > 0x7f800000u ? quiet : 0x7c00u;
  return static_cast<uint16_t>(
      sign | (magnitude >= kF16OverflowBits ? large : finite));
}

}  // namespace agg

#endif  // AGG_KERNELS_NARROW_FLOAT_H_
