// Entries of a part and their places, for writer, reader and validation alike.
#include "server/checkpoint/part_layout.h"

#include "absl/strings/str_cat.h"
#include "server/base/npy_header.h"
#include "server/checkpoint/stored_zip.h"

namespace agg {
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

}  // namespace agg
