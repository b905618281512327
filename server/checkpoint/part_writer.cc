// A part, one slice after the other: its memory is one slice's.
#include "server/checkpoint/part_writer.h"

#include <vector>

#include "absl/strings/string_view.h"
#include "server/base/status_macros.h"
#include "server/checkpoint/part_layout.h"

namespace agg {
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
