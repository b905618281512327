// Hides ISA-L's int length and its pointer to bytes that it might write, but
// does not.
#include "proto/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>

namespace agg {
namespace {

// A linear map of 32 bits over GF(2): where each bit goes.
using BitMap = std::array<uint32_t, 32>;

uint32_t Apply(const BitMap& map, uint32_t bits) {
  uint32_t result = 0;
  for (size_t i = 0; bits != 0; ++i, bits >>= 1) {
    if ((bits & 1) != 0) result ^= map[i];
  }
  return result;
}

BitMap Squared(const BitMap& map) {
  BitMap square;
  for (size_t i = 0; i < square.size(); ++i) square[i] = Apply(map, map[i]);
  return square;
}

// What 2^i zero bytes do to a checksum.
const std::array<BitMap, 63>& ZeroBytes() {
  static const auto* const maps = [] {
    constexpr uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's, reflected
    BitMap bit;
    bit[0] = kPolynomial;
    for (size_t i = 1; i < bit.size(); ++i) bit[i] = uint32_t{1} << (i - 1);
    auto* const result = new std::array<BitMap, 63>;
    (*result)[0] = Squared(Squared(Squared(bit)));
    for (size_t i = 1; i < result->size(); ++i) {
      (*result)[i] = Squared((*result)[i - 1]);
    }
    return result;
  }();
  return *maps;
}

}  // namespace

// The second checksum's own beginning and end cancel out: what is left of the
// first one is what so many zero bytes make of it.
uint32_t ConcatCrc32c(uint32_t first, uint32_t second, int64_t num_bytes) {
  for (size_t i = 0; num_bytes > 0; ++i, num_bytes >>= 1) {
    if ((num_bytes & 1) != 0) first = Apply(ZeroBytes()[i], first);
  }
  return first ^ second;
}

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
