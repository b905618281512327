// Blocks of 256 elements pass through the L1 cache: added to their residual,
// looked through for the largest, rounded; what is left is stored past the
// caches. Plain loops that the compiler vectorises, twice: with AVX2, where the
// machine has it, they are a third faster. No result depends on that.
#include "worker_client/row_encoding.h"

#include <emmintrin.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/narrow_float.h"
#include "kernels/row_format.h"
#include "server/base/dcheck.h"
#include "server/base/field_error.h"
#include "worker_client/float_narrowing.h"

#ifdef __SSE2__
#endif

namespace agg {

namespace {

constexpr size_t kBlock = kScaleBlockElements;

// Writes past the caches: these values are read a round later. Saves reading
// the memory first, a quarter of all traffic.
AGG_HOST_DEVICE void Stream(const float* from, size_t count, float* to) {
  size_t k = 0;
#ifdef __SSE2__
  if (reinterpret_cast<uintptr_t>(to) % 16 == 0) {
    for (; k + 4 <= count; k += 4) {
      _mm_stream_ps(to + k, _mm_loadu_ps(from + k));
    }
  }
#endif
  for (; k < count; ++k) to[k] = from[k];
}

// The bits of the largest magnitude: without the sign their order is that of
// the values, with infinities and NaN above all others.
AGG_HOST_DEVICE int32_t LargestBits(const float* values, size_t count) {
  int32_t largest = 0;
  for (size_t k = 0; k < count; ++k) {
    const auto bits =
        static_cast<int32_t>(BitsOfFloat(values[k]) & 0x7fffffffu);
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

// The scale of a block whose largest magnitude has these bits. It is rounded up
// to 16 bits, so that its products with 8 bits are exact in float32, and so is
// what is left of a value.
AGG_HOST_DEVICE float ScaleOf(int32_t largest_bits) {
  constexpr int32_t kInfinityBits = 0x7f800000;
  if (largest_bits >= kInfinityBits) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  const float exact = FloatOfBits(static_cast<uint32_t>(largest_bits)) / 127.0f;
  const float scale = FloatOfBits((BitsOfFloat(exact) + 0xffu) & ~0xffu);
  return scale < std::numeric_limits<float>::min() ? 0.0f : scale;
}

// What rounding makes of one block's values, and what it leaves of them.
// REQUIRES: scale is a normal number, and no |value| is above 127 of it.
AGG_HOST_DEVICE void Quantise(const float* values, size_t count, float scale,
                              int8_t* q, float* left) {
  // Adding 1.5 * 2^23 leaves no bits for a fraction: the adder rounds, and the
  // integer is in the low bits.
  constexpr float kRound = 12582912.0f;
  const float inverse = 1.0f / scale;
  for (size_t k = 0; k < count; ++k) {
    const float rounded = values[k] * inverse + kRound;
    q[k] = static_cast<int8_t>(BitsOfFloat(rounded) & 0xffu);
    left[k] = values[k] - (rounded - kRound) * scale;
  }
}

// One block, at most; `after` is null without feedback.
AGG_HOST_DEVICE void EncodeInt8Block(const float* values, size_t count,
                                     char* scale_to, int8_t* q, float* after,
                                     EncodingLoss* loss) {
  float left[kBlock];
  const float scale = ScaleOf(LargestBits(values, count));
  std::memcpy(scale_to, &scale, sizeof(scale));
  if (scale > 0.0f) {
    Quantise(values, count, scale, q, left);
    values = left;
  } else {  // nothing is sent, or it does not count
    std::memset(q, 0, count);
    if (scale == 0.0f) {
      for (size_t k = 0; k < count; ++k) {
        loss->num_vanished += values[k] != 0.0f ? 1 : 0;
      }
    }
  }
  if (after != nullptr) Stream(values, count, after);
}

// Of a block that has narrowed values that are infinite or zero: rows with many
// zeros have one after the other.
AGG_HOST_DEVICE void AddLoss(const float* values, const uint16_t* narrowed,
                             size_t count, uint16_t infinity,
                             EncodingLoss* loss) {
  uint32_t num_infinite = 0;
  uint32_t num_vanished = 0;
  for (size_t k = 0; k < count; ++k) {
    const uint32_t bits = BitsOfFloat(values[k]) & 0x7fffffffu;
    const uint32_t magnitude = narrowed[k] & 0x7fffu;
    num_infinite += (magnitude == infinity) & (bits < 0x7f800000u) ? 1 : 0;
    num_vanished += (magnitude == 0) & (bits > 0) ? 1 : 0;
  }
  loss->num_infinite += num_infinite;
  loss->num_vanished += num_vanished;
}

// Whether a value is infinite, NaN or zero: one pass over 16 bits each, in the
// L1 cache, where a magnitude of zero minus 1 is the largest number of all.
// (As a part of NarrowFloats' loops it costs more.)
AGG_HOST_DEVICE bool MayHaveLost(const uint16_t* narrowed, size_t count,
                                 uint16_t infinity) {
  uint16_t largest = 0;
  for (size_t k = 0; k < count; ++k) {
    const auto below = static_cast<uint16_t>((narrowed[k] & 0x7fffu) - 1u);
    largest = below > largest ? below : largest;
  }
  return largest >= infinity - 1;
}

AGG_HOST_DEVICE void EncodeNarrowBlock(const float* values, size_t count,
                                       DType dtype, uint16_t* to, float* after,
                                       EncodingLoss* loss) {
  NarrowFloats(absl::MakeConstSpan(values, count), dtype,
               absl::MakeSpan(to, count));
  const uint16_t infinity = dtype == DType::kBF16 ? 0x7f80 : 0x7c00;
  if (MayHaveLost(to, count, infinity)) {
    AddLoss(values, to, count, infinity, loss);
  }
  if (after == nullptr) return;
  WidenFloats(absl::MakeConstSpan(to, count), dtype,
              absl::MakeSpan(after, count));
  for (size_t k = 0; k < count; ++k) after[k] = values[k] - after[k];
}

AGG_HOST_DEVICE EncodingLoss EncodeBlocks(absl::Span<const float> gradient,
                                          DType dtype, const Residual& residual,
                                          char* scales, char* elements) {
  EncodingLoss loss;
  float sum[kBlock];
  for (size_t begin = 0; begin < gradient.size(); begin += kBlock) {
    const size_t count = std::min(kBlock, gradient.size() - begin);
    const float* values = gradient.data() + begin;
    float* after = nullptr;
    if (!residual.after.empty()) {
      const float* const before = residual.before.data() + begin;
      for (size_t k = 0; k < count; ++k) sum[k] = values[k] + before[k];
      values = sum;
      after = residual.after.data() + begin;
    }
    if (dtype == DType::kI8) {
      EncodeInt8Block(values, count, scales + begin / kBlock * kScaleBytes,
                      reinterpret_cast<int8_t*>(elements + begin), after,
                      &loss);
    } else {
      EncodeNarrowBlock(values, count, dtype,
                        reinterpret_cast<uint16_t*>(elements) + begin, after,
                        &loss);
    }
  }
#ifdef __SSE2__
  _mm_sfence();  // another thread may read what was streamed
#endif
  return loss;
}

#ifdef __x86_64__
__attribute__((target("avx2"))) EncodingLoss EncodeBlocksAvx2(
    absl::Span<const float> gradient, DType dtype, const Residual& residual,
    char* scales, char* elements) {
  return EncodeBlocks(gradient, dtype, residual, scales, elements);
}
#endif

}  // namespace

EncodingLoss EncodeFloats(absl::Span<const float> gradient, DType dtype,
                          const Residual& residual, char* scales,
                          char* elements) {
  AGG_DCHECK(dtype != DType::kF32);
  AGG_DCHECK(reinterpret_cast<uintptr_t>(elements) % 2 == 0);
  AGG_DCHECK(residual.before.empty() ||
             residual.before.size() == gradient.size());
  AGG_DCHECK(residual.after.size() == residual.before.size());
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) {
    return EncodeBlocksAvx2(gradient, dtype, residual, scales, elements);
  }
#endif
  return EncodeBlocks(gradient, dtype, residual, scales, elements);
}

EncodingLoss EncodeFloats(absl::Span<const float> gradient, DType dtype,
                          const Residual& residual, char* to) {
  return EncodeFloats(
      gradient, dtype, residual, to,
      to + ScaleBytes(dtype, static_cast<int64_t>(gradient.size())));
}

// Two arrays per tensor, which change places when a row was included.

ErrorFeedback::ErrorFeedback(const std::vector<int64_t>& num_elements)
    : tensors_(num_elements.size()) {
  for (size_t t = 0; t < tensors_.size(); ++t) {
    tensors_[t].before.resize(static_cast<size_t>(num_elements[t]));
    tensors_[t].after.resize(static_cast<size_t>(num_elements[t]));
  }
}

void ErrorFeedback::Begin(const RowName& row) {
  if (fate_ == Fate::kIncluded) {
    next_round_ = row_.round + 1;
    included_session_ = row_.session;
  }
  // A round that is over for this session: the row cannot count, and the next
  // round's begins as it would have without it.
  const bool repeats =
      row.round + 1 == next_round_ && row.session == included_session_;
  const bool gone_back = forgotten_ || (row.round < next_round_ && !repeats);
  for (Tensor& tensor : tensors_) {
    if (gone_back) {
      std::fill(tensor.before.begin(), tensor.before.end(), 0.0f);
    } else if (tensor.sent && fate_ == Fate::kIncluded) {
      tensor.before.swap(tensor.after);
    }
    tensor.sent = false;
  }
  if (gone_back) {
    next_round_ = row.round;
    included_session_ = 0;
  }
  row_ = row;
  fate_ = Fate::kUnknown;
  forgotten_ = false;
}

Residual ErrorFeedback::ResidualOf(int32_t tensor, int64_t begin,
                                   int64_t num_elements) {
  Tensor& of_tensor = tensors_[static_cast<size_t>(tensor)];
  of_tensor.sent = true;
  const auto first = static_cast<size_t>(begin);
  const auto count = static_cast<size_t>(num_elements);
  return {absl::MakeConstSpan(of_tensor.before).subspan(first, count),
          absl::MakeSpan(of_tensor.after).subspan(first, count)};
}

void ErrorFeedback::Settle(const RowName& row, bool included) {
  if (!(row == row_) || fate_ != Fate::kUnknown) return;
  fate_ = included ? Fate::kIncluded : Fate::kDropped;
}

void ErrorFeedback::Forget() { forgotten_ = true; }

std::unique_ptr<ErrorFeedback> MakeErrorFeedback(const Manifest& manifest,
                                                 DType push_dtype,
                                                 absl::optional<bool> wanted) {
  if (push_dtype == DType::kF32 || !wanted.value_or(push_dtype == DType::kI8)) {
    return nullptr;
  }
  std::vector<int64_t> num_elements;
  for (const TensorSpec& tensor : manifest.tensors) {
    num_elements.push_back(NumElements(tensor));
  }
  return std::make_unique<ErrorFeedback>(num_elements);
}

// The first tensor is that of the lowest index, whichever slice came first.

void EncodingTally::Set(int32_t slice, int tensor, const EncodingLoss& loss) {
  MutexLock lock(&mutex_);
  if (loss.num_infinite == 0 && loss.num_vanished == 0) {
    lost_.erase(slice);
  } else {
    lost_[slice] = {tensor, loss};
  }
}

std::string EncodingTally::Describe(const Manifest& manifest,
                                    DType dtype) const {
  int64_t num_infinite = 0, num_vanished = 0;
  int first_infinite = INT_MAX, first_vanished = INT_MAX;  // tensors
  {
    MutexLock lock(&mutex_);
    for (const auto& slice : lost_) {
      const Lost& lost = slice.second;
      num_infinite += lost.loss.num_infinite;
      num_vanished += lost.loss.num_vanished;
      if (lost.loss.num_infinite > 0) {
        first_infinite = std::min(first_infinite, lost.tensor);
      }
      if (lost.loss.num_vanished > 0) {
        first_vanished = std::min(first_vanished, lost.tensor);
      }
    }
  }
  // A number that is not 0 has its tensor.
  const auto name = [&](int first) {
    return Quoted(manifest.tensors[static_cast<size_t>(first)].name);
  };
  std::string text;
  if (num_infinite > 0) {
    text =
        absl::StrCat("this worker's row had ", num_infinite,
                     " finite values that push_dtype \"", DTypeName(dtype),
                     "\" sends as infinite, so that it cannot count: tensor ",
                     name(first_infinite));
  }
  if (num_vanished * 1000 > NumElements(manifest)) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", "this worker's row had ",
                    num_vanished, " values that push_dtype \"",
                    DTypeName(dtype), "\" sends as zero: tensor ",
                    name(first_vanished));
  }
  if (text.empty()) return text;
  return absl::StrCat(text,
                      "; allowed: another loss_scale, or push_dtype \"f32\"",
                      dtype == DType::kF16 ? " or \"bf16\"" : "");
}

}  // namespace agg
