// The records of a zip archive whose entries are stored as they are. Not
// libzip, which writes a file by itself: here each write and fsync has to go
// through FileSystem, each byte's place has to be known beforehand, and the
// file's checksum is made while it is written. The names of the records are
// those of PKWARE's APPNOTE.TXT, 4.3.
//
// An archive here always has the zip64 records, so that one of a few bytes and
// one of many GiB take the same way.
#ifndef AGG_SERVER_CHECKPOINT_STORED_ZIP_H_
#define AGG_SERVER_CHECKPOINT_STORED_ZIP_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace agg {

struct ZipEntry {
  std::string name;  // ASCII, at most 65535 bytes
  uint32_t crc32 = 0;
  uint32_t num_bytes = 0;  // of the data
  uint64_t offset = 0;     // of the local header in the file
};

// The CRC-32 of zip and gzip: from 0 on over the pieces of the data.
uint32_t ExtendCrc32(uint32_t crc, absl::string_view bytes);

// "Local file header": the entry's data follows it.
std::string ZipLocalHeader(const ZipEntry& entry);

// "Central directory header" and its length without the name.
std::string ZipDirectoryEntry(const ZipEntry& entry);
inline constexpr int64_t kZipDirectoryEntryBytes = 46 + 12;

// The records after the directory: where it begins, and how long it is. An
// archive without entries has the plain "end of central directory record"
// alone, by which NumPy knows an empty archive.
std::string ZipEnd(uint64_t num_entries, uint64_t directory_offset,
                   uint64_t directory_bytes);
// Its length.
int64_t ZipEndBytes(uint64_t num_entries);

}  // namespace agg

#endif  // AGG_SERVER_CHECKPOINT_STORED_ZIP_H_
