// Where the entries of a part lie in its file, and how it is written. The
// places are a pure function of the plan: nothing is compressed, so that a
// reader knows each byte's place without reading the archive's directory.
#ifndef AGG_SERVER_CHECKPOINT_PART_LAYOUT_H_
#define AGG_SERVER_CHECKPOINT_PART_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/shard_plan.h"
#include "server/checkpoint/durable_file.h"

namespace agg {

// --- The records of a zip archive whose entries are stored as they are. Not
// libzip, which writes a file by itself: here each write and fsync has to go
// through FileSystem, each byte's place has to be known beforehand, and the
// file's checksum is made while it is written. The names of the records are
// those of PKWARE's APPNOTE.TXT, 4.3.
//
// An archive here always has the zip64 records, so that one of a few bytes and
// one of many GiB take the same way.
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

// Entries of one shard's part: for each of its slices, in the plan's order, its
// parameters and then the optimizer's arrays.
struct PartLayout {
  std::vector<int32_t> slices;  // indices into the plan's slices, ascending
  int num_arrays = 1;           // parameters included
  // Offsets where records begin: entry i is array i % num_arrays of slice i /
  // num_arrays. There is one more than entries: the last is where the directory
  // begins.
  std::vector<int64_t> offsets;
  int64_t num_bytes = 0;  // of the file
};

// REQUIRES: 0 <= ordinal < plan.num_shards, 1 <= num_arrays <= 3.
PartLayout MakePartLayout(const ShardPlan& plan, int ordinal, int num_arrays);

// "t2.1048576.state0.npy": array 1 of the slice of tensor 2 that begins at that
// element. `array`: 0 parameters, 1 state0, 2 state1.
std::string PartEntryName(const Slice& slice, int array);

// What precedes the slice's bytes in the file: the archive's record of the
// entry, which has the checksum of the entry's data, and the .npy header.
// `data_crc32`: of the .npy header and the bytes.
std::string PartEntryHead(const Slice& slice, int array, uint32_t data_crc32);

// The CRC-32 of an entry: of the .npy header and then the slice's bytes.
uint32_t PartEntryCrc32(const Slice& slice, absl::string_view bytes);

// What follows the last entry. `crc32s`: one for each entry.
std::string PartTail(const ShardPlan& plan, const PartLayout& layout,
                     const std::vector<uint32_t>& crc32s);

// A shard's arrays as they were at the checkpoint's version: they do not change
// while the part is written.
struct PartSource {
  const ShardPlan* plan = nullptr;
  int ordinal = 0;
  int num_arrays = 1;  // parameters included, at most 3
  // The float32 values of a slice (an index into plan->slices) in array 0
  // (parameters), 1 (state0) or 2 (state1); valid until the next call. An
  // error, such as CANCELLED, ends the writing with it.
  std::function<absl::StatusOr<absl::Span<const float>>(int32_t slice,
                                                        int array)>
      values;
};

// Appends the part's bytes, which depend on the values alone. Errors: those of
// the file and of source.values.
absl::Status AppendPart(const PartSource& source, DurableFile* file);

}  // namespace agg

#endif  // AGG_SERVER_CHECKPOINT_PART_LAYOUT_H_
