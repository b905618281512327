#include "tests/worker_client/fake_payload.h"

#include <cstdint>
#include <cstring>

#include "kernels/narrow_float.h"

namespace agg {
namespace {

// 256 elements of a byte have a scale of 4: so many bytes have so many scales.
std::vector<float> WidenInt8(absl::string_view bytes) {
  const size_t num_scales = (bytes.size() + 259) / 260;
  std::vector<float> values;
  for (size_t k = 0; k + 4 * num_scales < bytes.size(); ++k) {
    float scale;
    std::memcpy(&scale, bytes.data() + k / 256 * 4, sizeof(scale));
    values.push_back(scale * static_cast<int8_t>(bytes[4 * num_scales + k]));
  }
  return values;
}

}  // namespace

std::string Narrow(const std::vector<float>& values, v1::DType dtype) {
  if (dtype == v1::F32) {
    return std::string(reinterpret_cast<const char*>(values.data()),
                       values.size() * sizeof(float));
  }
  std::string bytes;
  for (float value : values) {
    const uint16_t bits =
        dtype == v1::BF16 ? Bf16OfFloat(value) : F16OfFloat(value);
    bytes.push_back(static_cast<char>(bits & 0xff));
    bytes.push_back(static_cast<char>(bits >> 8));
  }
  return bytes;
}

std::vector<float> Widen(absl::string_view bytes, v1::DType dtype) {
  std::vector<float> values;
  if (dtype == v1::F32) {
    values.resize(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  if (dtype == v1::I8) return WidenInt8(bytes);
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    const auto bits =
        static_cast<uint16_t>(static_cast<uint8_t>(bytes[i]) |
                              (static_cast<uint8_t>(bytes[i + 1]) << 8));
    values.push_back(dtype == v1::BF16 ? FloatOfBf16(bits) : FloatOfF16(bits));
  }
  return values;
}

}  // namespace agg
