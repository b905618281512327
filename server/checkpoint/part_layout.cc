// Entries of a part and their places, for writer, reader and validation alike.
#include "server/checkpoint/part_layout.h"

#include <isa-l/crc.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/dcheck.h"
#include "server/base/npy_header.h"
#include "server/base/status_macros.h"

namespace agg {

// The records of zip, byte by byte, apart from what a part puts into them.

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

namespace {

std::string NpyHeaderOf(const Slice& slice) {
  return FormatNpyHeader("<f4", {slice.num_elements});
}

int64_t NumBytes(const Slice& slice) {
  return slice.num_elements * int64_t{sizeof(float)};
}

ZipEntry EntryOf(const Slice& slice, int array, const std::string& npy_header,
                 uint32_t crc32, int64_t offset) {
  ZipEntry entry;
  entry.name = PartEntryName(slice, array);
  entry.crc32 = crc32;
  // A slice is 4 MiB at most.
  entry.num_bytes = static_cast<uint32_t>(npy_header.size() + NumBytes(slice));
  entry.offset = offset;
  return entry;
}

}  // namespace

std::string PartEntryName(const Slice& slice, int array) {
  constexpr absl::string_view kArrays[] = {"parameters", "state0", "state1"};
  return absl::StrCat("t", slice.tensor, ".", slice.begin, ".", kArrays[array],
                      ".npy");
}

std::string PartEntryHead(const Slice& slice, int array, uint32_t data_crc32) {
  const std::string npy_header = NpyHeaderOf(slice);
  return ZipLocalHeader(EntryOf(slice, array, npy_header, data_crc32, 0)) +
         npy_header;
}

uint32_t PartEntryCrc32(const Slice& slice, absl::string_view bytes) {
  return ExtendCrc32(ExtendCrc32(0, NpyHeaderOf(slice)), bytes);
}

PartLayout MakePartLayout(const ShardPlan& plan, int ordinal, int num_arrays) {
  AGG_DCHECK(ordinal >= 0 &&
             static_cast<size_t>(ordinal) < plan.slices_of_shard.size());
  AGG_DCHECK(num_arrays >= 1 && num_arrays <= 3);
  PartLayout layout;
  layout.slices = plan.slices_of_shard[ordinal];
  layout.num_arrays = num_arrays;
  int64_t offset = 0;
  int64_t directory_bytes = 0;
  for (const int32_t index : layout.slices) {
    const Slice& slice = plan.slices[index];
    for (int array = 0; array < num_arrays; ++array) {
      layout.offsets.push_back(offset);
      offset += static_cast<int64_t>(PartEntryHead(slice, array, 0).size()) +
                NumBytes(slice);
      directory_bytes +=
          kZipDirectoryEntryBytes +
          static_cast<int64_t>(PartEntryName(slice, array).size());
    }
  }
  layout.offsets.push_back(offset);
  layout.num_bytes =
      offset + directory_bytes + ZipEndBytes(layout.offsets.size() - 1);
  return layout;
}

std::string PartTail(const ShardPlan& plan, const PartLayout& layout,
                     const std::vector<uint32_t>& crc32s) {
  std::string tail;
  for (size_t i = 0; i < crc32s.size(); ++i) {
    const Slice& slice = plan.slices[layout.slices[i / layout.num_arrays]];
    tail += ZipDirectoryEntry(
        EntryOf(slice, static_cast<int>(i % layout.num_arrays),
                NpyHeaderOf(slice), crc32s[i], layout.offsets[i]));
  }
  return tail + ZipEnd(crc32s.size(), layout.offsets.back(), tail.size());
}

namespace {

// The bytes in memory are the bytes in the file: little-endian machines only.
absl::string_view BytesOf(absl::Span<const float> values) {
  return absl::string_view(reinterpret_cast<const char*>(values.data()),
                           values.size() * sizeof(float));
}

}  // namespace

absl::Status AppendPart(const PartSource& source, DurableFile* file) {
  const PartLayout layout =
      MakePartLayout(*source.plan, source.ordinal, source.num_arrays);
  std::vector<uint32_t> crc32s;
  crc32s.reserve(layout.offsets.size());
  for (const int32_t index : layout.slices) {
    const Slice& slice = source.plan->slices[index];
    for (int array = 0; array < source.num_arrays; ++array) {
      AGG_ASSIGN_OR_RETURN(const absl::Span<const float> values,
                           source.values(index, array));
      const absl::string_view bytes = BytesOf(values);
      crc32s.push_back(PartEntryCrc32(slice, bytes));
      AGG_RETURN_IF_ERROR(
          file->Append(PartEntryHead(slice, array, crc32s.back())));
      AGG_RETURN_IF_ERROR(file->Append(bytes));
    }
  }
  return file->Append(PartTail(*source.plan, layout, crc32s));
}

}  // namespace agg
