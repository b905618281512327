// Any bytes, in pieces: refused, or read to the end within their bounds.
#include <cstdint>
#include <string>
#include <vector>

#include "proto/byte_buffer_frame.h"
#include "proto/crc32c.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece = data[0] % 17 + 1;
  const std::string bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  std::vector<grpc::Slice> slices;
  for (size_t i = 0; i < bytes.size(); i += piece) {
    slices.emplace_back(bytes.substr(i, piece));
  }
  const grpc::ByteBuffer buffer(slices.data(), slices.size());
  agg::FrameReader reader;
  if (!reader.Init(buffer).ok()) return 0;
  if (reader.remaining_bytes() > static_cast<int64_t>(bytes.size())) {
    __builtin_trap();
  }
  std::string out(reader.remaining_bytes(), '\0');
  const int64_t half = reader.remaining_bytes() / 2;
  reader.Skip(half);
  // In two places, as int8's scales and elements.
  const int64_t first = reader.remaining_bytes() / 3;
  uint32_t crc = reader.ReadOn(&out[0], first, agg::kCrc32cInit);
  crc = reader.ReadOn(&out[first], reader.remaining_bytes(), crc);
  out.resize(out.size() - half);
  if (agg::FinishCrc32c(crc) != agg::Crc32c(out)) __builtin_trap();
  return 0;
}
