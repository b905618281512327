#include "tests/server/round/row_frames.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/string_view.h"
#include "kernels/narrow_float.h"
#include "kernels/row_format.h"
#include "proto/crc32c.h"
#include "server/ingest/shard_layout.h"

namespace agg {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014).
uint64_t NextRandom(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Scales, then elements: the largest magnitude of a block is 127 steps.
std::string Int8Bytes(const float* values, int64_t num_elements) {
  std::string bytes(PayloadBytes(DType::kI8, num_elements), '\0');
  const int64_t scale_bytes = ScaleBytes(DType::kI8, num_elements);
  for (int64_t begin = 0; begin < num_elements; begin += kScaleBlockElements) {
    const int64_t end = std::min(begin + kScaleBlockElements, num_elements);
    float largest = 0.0f;
    bool finite = true;
    for (int64_t k = begin; k < end; ++k) {
      finite = finite && std::isfinite(values[k]);
      largest = std::max(largest, std::fabs(values[k]));
    }
    const float scale = finite ? largest / 127 : std::nanf("");
    std::memcpy(&bytes[begin / kScaleBlockElements * kScaleBytes], &scale,
                sizeof(scale));
    if (!finite || scale == 0.0f) continue;
    for (int64_t k = begin; k < end; ++k) {
      const float steps = std::nearbyint(values[k] / scale);
      bytes[scale_bytes + k] = static_cast<char>(
          static_cast<int8_t>(std::clamp(steps, -127.0f, 127.0f)));
    }
  }
  return bytes;
}

}  // namespace

Tensors RandomTensors(const Manifest& manifest, uint64_t seed) {
  uint64_t state = seed;
  Tensors tensors;
  for (const TensorSpec& tensor : manifest.tensors) {
    std::vector<float> values(static_cast<size_t>(NumElements(tensor)));
    for (float& value : values) {
      const int32_t bits = static_cast<int32_t>(NextRandom(&state) >> 40);
      value = static_cast<float>(bits - (1 << 23)) / (1 << 23);
    }
    tensors.push_back(std::move(values));
  }
  return tensors;
}

Tensors FilledTensors(const Manifest& manifest, float value) {
  Tensors tensors;
  for (const TensorSpec& tensor : manifest.tensors) {
    tensors.emplace_back(static_cast<size_t>(NumElements(tensor)), value);
  }
  return tensors;
}

std::string SliceBytes(const Slice& slice, const Tensors& tensors,
                       DType dtype) {
  const float* values = tensors[slice.tensor].data() + slice.begin;
  if (dtype == DType::kI8) return Int8Bytes(values, slice.num_elements);
  std::string bytes(slice.num_elements * DTypeBytes(dtype), '\0');
  if (dtype == DType::kF32) {
    std::memcpy(&bytes[0], values, bytes.size());
    return bytes;
  }
  for (int64_t i = 0; i < slice.num_elements; ++i) {
    const uint16_t narrow =
        dtype == DType::kBF16 ? Bf16OfFloat(values[i]) : F16OfFloat(values[i]);
    std::memcpy(&bytes[i * 2], &narrow, sizeof(narrow));
  }
  return bytes;
}

std::vector<TestFrame> MakeFrames(const FrameHeader& base,
                                  const ShardPlan& plan, int shard,
                                  const Tensors& tensors,
                                  const std::set<int32_t>& absent) {
  std::vector<TestFrame> frames;
  TestFrame leaves_out;
  leaves_out.header = base;
  for (int32_t index : plan.slices_of_shard[shard]) {
    const Slice& slice = plan.slices[index];
    if (absent.count(slice.tensor) != 0) {
      leaves_out.header.absent_slices.push_back(static_cast<uint32_t>(index));
      continue;
    }
    TestFrame frame;
    frame.header = base;
    frame.payload = SliceBytes(slice, tensors, base.dtype);
    frame.header.slices = {static_cast<uint32_t>(index)};
    frame.header.crc32c = {Crc32c(frame.payload)};
    frame.header.payload_bytes = static_cast<int64_t>(frame.payload.size());
    frames.push_back(std::move(frame));
  }
  if (!leaves_out.header.absent_slices.empty()) frames.push_back(leaves_out);
  return frames;
}

void CopyPayload(const TestFrame& frame, FrameLanding* landing) {
  absl::string_view rest = frame.payload;
  for (SliceLanding& slice : landing->slices) {
    const absl::string_view bytes = rest.substr(0, slice.num_bytes);
    rest.remove_prefix(bytes.size());
    if (slice.destination == nullptr) continue;
    const absl::string_view scales = bytes.substr(0, slice.scale_bytes);
    const absl::string_view elements = bytes.substr(scales.size());
    if (!scales.empty()) {
      std::memcpy(slice.scale_destination, scales.data(), scales.size());
    }
    std::memcpy(slice.destination, elements.data(), elements.size());
    slice.landed = Crc32c(bytes) == slice.crc32c;
  }
}

absl::StatusOr<FrameResult> LandFrame(ShardEngine* engine,
                                      const TestFrame& frame) {
  absl::StatusOr<FrameLanding> landing = engine->BeginFrame(frame.header);
  if (!landing.ok()) return landing.status();
  CopyPayload(frame, &*landing);
  return engine->EndFrame(*landing);
}

void ReadVersion(const PublishedVersion& version, DType dtype,
                 Tensors* tensors) {
  const ShardLayout& layout = *version.layout;
  tensors->resize(layout.manifest.tensors.size());
  for (size_t t = 0; t < tensors->size(); ++t) {
    (*tensors)[t].resize(
        static_cast<size_t>(NumElements(layout.manifest.tensors[t])));
  }
  const char* data = version.snapshot->data(dtype);
  for (size_t i = 0; i < layout.slices.size(); ++i) {
    const Slice& slice = layout.plan.slices[layout.slices[i]];
    const char* from = data + layout.ranges[i].begin * DTypeBytes(dtype);
    float* to = (*tensors)[slice.tensor].data() + slice.begin;
    for (int64_t e = 0; e < slice.num_elements; ++e) {
      if (dtype == DType::kF32) {
        std::memcpy(&to[e], from + e * 4, 4);
        continue;
      }
      uint16_t narrow;
      std::memcpy(&narrow, from + e * 2, 2);
      to[e] = dtype == DType::kBF16 ? FloatOfBf16(narrow) : FloatOfF16(narrow);
    }
  }
}

bool SameBits(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (size_t t = 0; t < a.size(); ++t) {
    if (a[t].size() != b[t].size()) return false;
    if (!a[t].empty() &&
        std::memcmp(a[t].data(), b[t].data(), a[t].size() * 4) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace agg
