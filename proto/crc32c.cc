// Hides ISA-L's int length and its pointer to bytes that it might write, but
// does not.
#include "proto/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace agg {

uint32_t ExtendCrc32c(uint32_t crc, absl::string_view bytes) {
  // ISA-L takes an int length and, though it only reads, a mutable pointer.
  constexpr size_t kMaxPiece = size_t{1} << 30;
  while (!bytes.empty()) {
    const size_t piece = std::min(bytes.size(), kMaxPiece);
    crc = crc32_iscsi(
        reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data())),
        static_cast<int>(piece), crc);
    bytes.remove_prefix(piece);
  }
  return crc;
}

uint32_t Crc32cOfWords(const std::vector<uint32_t>& words) {
  uint32_t crc = kCrc32cInit;
  for (const uint32_t word : words) {
    const char bytes[] = {static_cast<char>(word), static_cast<char>(word >> 8),
                          static_cast<char>(word >> 16),
                          static_cast<char>(word >> 24)};
    crc = ExtendCrc32c(crc, absl::string_view(bytes, sizeof(bytes)));
  }
  return FinishCrc32c(crc);
}

}  // namespace agg
