// CRC32C (Castagnoli) of frames, through ISA-L.
#ifndef AGG_PROTO_CRC32C_H_
#define AGG_PROTO_CRC32C_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace agg {

// A running checksum: ExtendCrc32c over the pieces from kCrc32cInit on, then
// FinishCrc32c.
inline constexpr uint32_t kCrc32cInit = 0xffffffffu;
uint32_t ExtendCrc32c(uint32_t crc, absl::string_view bytes);
constexpr uint32_t FinishCrc32c(uint32_t crc) { return ~crc; }

// Returns the checksum of `bytes` alone; 0xe3069283 for "123456789" (RFC 3720).
inline uint32_t Crc32c(absl::string_view bytes) {
  return FinishCrc32c(ExtendCrc32c(kCrc32cInit, bytes));
}

// Returns the checksum of two pieces, one behind the other, from the checksum
// of each; `num_bytes` is the second one's length, at least 0. So pieces may be
// read in any order.
uint32_t ConcatCrc32c(uint32_t first, uint32_t second, int64_t num_bytes);

// Returns the checksum of the words' bytes, 4 each, little endian: a row's
// checksum from those of its slices (CommitRequest.row_crc32c of agg.proto). 0
// for no words.
uint32_t Crc32cOfWords(const std::vector<uint32_t>& words);

}  // namespace agg

#endif  // AGG_PROTO_CRC32C_H_
