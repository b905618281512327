// Little-endian fields of zip records.
#ifndef AGG_WORKER_CLIENT_NPZ_ZIP_BYTES_H_
#define AGG_WORKER_CLIENT_NPZ_ZIP_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace agg {

inline constexpr uint32_t kZipLocalSignature = 0x04034b50;
inline constexpr uint32_t kZipCentralSignature = 0x02014b50;
inline constexpr uint32_t kZipEndSignature = 0x06054b50;
inline constexpr uint32_t kZip64EndSignature = 0x06064b50;
inline constexpr uint32_t kZip64LocatorSignature = 0x07064b50;
inline constexpr uint16_t kZip64ExtraId = 1;
// In a 16- or 32-bit field: the value is in the Zip64 record.
inline constexpr uint32_t kZipIn64 = 0xffffffffu;
inline constexpr uint16_t kZipCountIn64 = 0xffffu;

// Bytes of the records without names, extras and comments.
inline constexpr size_t kZipLocalBytes = 30;
inline constexpr size_t kZipCentralBytes = 46;
inline constexpr size_t kZipEndBytes = 22;
inline constexpr size_t kZip64EndBytes = 56;
inline constexpr size_t kZip64LocatorBytes = 20;

template <typename T>
void AppendLittleEndian(T value, std::string* out) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out->push_back(static_cast<char>((value >> (8 * i)) & 0xff));
  }
}

// REQUIRES: at + sizeof(T) <= bytes.size().
template <typename T>
T LittleEndianAt(absl::string_view bytes, size_t at) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(static_cast<uint8_t>(bytes[at + i])) << (8 * i);
  }
  return value;
}

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_NPZ_ZIP_BYTES_H_
