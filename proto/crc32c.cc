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

}  // namespace agg
