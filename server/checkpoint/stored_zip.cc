// The records of zip, byte by byte, apart from what a part puts into them.
#include "server/checkpoint/stored_zip.h"

#include <isa-l/crc.h>

namespace agg {
namespace {

constexpr uint16_t kVersion = 45;    // zip64 came with 4.5
constexpr uint16_t kDosDate = 0x21;  // 1980-01-01: equal bytes at any time
constexpr uint16_t kIn64Bits16 = 0xffff;
constexpr uint32_t kIn64Bits32 = 0xffffffff;
constexpr int64_t kEndBytes = 22;
constexpr int64_t kZip64EndBytes = 56 + 20;

// Little-endian numbers, one behind the other.
class Record {
 public:
  Record& U16(uint64_t value) { return Add(value, 2); }
  Record& U32(uint64_t value) { return Add(value, 4); }
  Record& U64(uint64_t value) { return Add(value, 8); }
  Record& Text(absl::string_view text) {
    bytes_.append(text.data(), text.size());
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  Record& Add(uint64_t value, int num_bytes) {
    for (int i = 0; i < num_bytes; ++i) {
      bytes_.push_back(static_cast<char>(value >> (8 * i)));
    }
    return *this;
  }
  std::string bytes_;
};

// What a local header and the directory have in common, from the version
// needed to read the entry to the length of its name.
void AddDescription(const ZipEntry& entry, Record* record) {
  record->U16(kVersion).U16(0 /*flags*/).U16(0 /*stored*/);
  record->U16(0 /*time*/).U16(kDosDate);
  record->U32(entry.crc32).U32(entry.num_bytes).U32(entry.num_bytes);
  record->U16(entry.name.size());
}

}  // namespace

uint32_t ExtendCrc32(uint32_t crc, absl::string_view bytes) {
  return crc32_gzip_refl(
      crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

std::string ZipLocalHeader(const ZipEntry& entry) {
  Record record;
  record.U32(0x04034b50);
  AddDescription(entry, &record);
  record.U16(0 /*extra*/).Text(entry.name);
  return record.bytes();
}

std::string ZipDirectoryEntry(const ZipEntry& entry) {
  Record record;
  record.U32(0x02014b50).U16(kVersion /*made by*/);
  AddDescription(entry, &record);
  record.U16(12 /*extra*/).U16(0 /*comment*/).U16(0 /*disk*/);
  record.U16(0 /*internal attributes*/).U32(0 /*external attributes*/);
  record.U32(kIn64Bits32 /*offset*/).Text(entry.name);
  record.U16(1 /*zip64*/).U16(8).U64(entry.offset);
  return record.bytes();
}

std::string ZipEnd(uint64_t num_entries, uint64_t directory_offset,
                   uint64_t directory_bytes) {
  Record record;
  const bool empty = num_entries == 0;
  if (!empty) {
    const uint64_t end_offset = directory_offset + directory_bytes;
    record.U32(0x06064b50).U64(44 /*bytes that follow*/);
    record.U16(kVersion).U16(kVersion).U32(0 /*disk*/).U32(0 /*disk*/);
    record.U64(num_entries).U64(num_entries);
    record.U64(directory_bytes).U64(directory_offset);
    record.U32(0x07064b50).U32(0 /*disk*/).U64(end_offset).U32(1 /*disks*/);
  }
  record.U32(0x06054b50).U16(0 /*disk*/).U16(0 /*disk*/);
  record.U16(empty ? 0 : kIn64Bits16).U16(empty ? 0 : kIn64Bits16);
  record.U32(empty ? 0 : kIn64Bits32).U32(empty ? 0 : kIn64Bits32);
  record.U16(0 /*comment*/);
  return record.bytes();
}

int64_t ZipEndBytes(uint64_t num_entries) {
  return kEndBytes + (num_entries == 0 ? 0 : kZip64EndBytes);
}

}  // namespace agg
