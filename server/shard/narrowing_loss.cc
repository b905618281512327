// By the bits of magnitudes, whose order is that of the values.
#include "server/shard/narrowing_loss.h"

#include "kernels/narrow_float.h"

namespace agg {
namespace {

constexpr uint32_t kInfinityBits = 0x7f800000u;

uint32_t MagnitudeBits(float value) { return BitsOfFloat(value) & 0x7fffffffu; }

}  // namespace

void AddInfinite(absl::Span<const float> values, DType dtype, int32_t slice,
                 NarrowingLoss* loss) {
  const uint32_t limit = dtype == DType::kF16    ? kF16OverflowBits
                         : dtype == DType::kBF16 ? kBf16OverflowBits
                                                 : kInfinityBits;
  uint64_t number = 0;
  for (const float value : values) {
    const uint32_t bits = MagnitudeBits(value);
    number += bits >= limit && bits < kInfinityBits ? 1 : 0;
  }
  loss->num_infinite += number;
  if (number > 0 && (loss->slice < 0 || slice < loss->slice)) {
    loss->slice = slice;
  }
}

void AddVanished(absl::Span<const float> values, DType dtype,
                 NarrowingLoss* loss) {
  const uint32_t limit = dtype == DType::kF16    ? kF16VanishBits
                         : dtype == DType::kBF16 ? kBf16VanishBits
                                                 : 0;
  for (const float value : values) {
    const uint32_t bits = MagnitudeBits(value);
    loss->num_compared += bits > 0 ? 1 : 0;
    loss->num_vanished += bits > 0 && bits <= limit ? 1 : 0;
  }
}

}  // namespace agg
