// CheckpointReader: the places of a part's entries follow from the plan, so
// that nothing of the archive is parsed; all of it is compared with what was
// written.
#include "server/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/crc32c.h"
#include "server/base/dcheck.h"
#include "server/base/status_macros.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/checkpoint/durable_file.h"

namespace agg {
namespace {

// Few enough to be there soon, whatever the disk: each is progress.
constexpr int64_t kReadBytes = int64_t{1} << 20;
// Where a local header of zip has the CRC-32.
constexpr size_t kCrc32Offset = 14;

uint32_t Crc32Of(absl::string_view head) {
  uint32_t crc32 = 0;
  for (int i = 3; i >= 0; --i) {
    crc32 = crc32 << 8 | static_cast<unsigned char>(head[kCrc32Offset + i]);
  }
  return crc32;
}

absl::Status Damaged(const std::string& path, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(path, " is damaged: ", what));
}

absl::Span<char> BytesOf(absl::Span<float> values) {
  return absl::MakeSpan(reinterpret_cast<char*>(values.data()),
                        values.size() * sizeof(float));
}

absl::string_view ViewOf(absl::Span<char> bytes) {
  return absl::string_view(bytes.data(), bytes.size());
}

}  // namespace

absl::StatusOr<CheckpointManifest> ReadCheckpointManifest(
    FileSystem* files, const std::string& folder,
    const absl::optional<CheckpointId>& id) {
  const std::string path = absl::StrCat(folder, "/", kManifestFile);
  AGG_ASSIGN_OR_RETURN(const std::string text,
                       ReadSmallFile(files, path, kMaxManifestBytes));
  absl::StatusOr<CheckpointManifest> manifest = ParseCheckpointManifest(text);
  if (!manifest.ok()) {
    return absl::Status(
        manifest.status().code(),
        absl::StrCat(path, " cannot be used: ", manifest.status().message()));
  }
  if (id.has_value() && !(manifest->id == *id)) {
    return Damaged(
        path, absl::StrCat("it is of ", CheckpointFolderName(manifest->id)));
  }
  return manifest;
}

absl::StatusOr<CheckpointReader> CheckpointReader::Create(
    FileSystem* files, const std::string& folder,
    const CheckpointManifest& manifest) {
  AGG_ASSIGN_OR_RETURN(ShardPlan plan,
                       MakeShardPlan(manifest.tensors, manifest.num_shards));
  CheckpointReader reader(files, folder, manifest);
  reader.plan_ = std::move(plan);
  reader.position_.resize(reader.plan_.slices.size());
  for (int i = 0; i < manifest.num_shards; ++i) {
    reader.layouts_.push_back(
        MakePartLayout(reader.plan_, i, 1 + manifest.num_state_arrays));
    const std::vector<int32_t>& slices = reader.layouts_.back().slices;
    for (size_t j = 0; j < slices.size(); ++j) {
      reader.position_[slices[j]] = static_cast<int32_t>(j);
    }
  }
  reader.parts_.resize(manifest.num_shards);
  reader.read_.resize(manifest.num_shards);
  return reader;
}

std::string CheckpointReader::PathOf(int ordinal) const {
  return absl::StrCat(folder_, "/", manifest_.parts[ordinal].file);
}

absl::StatusOr<ReadableFile*> CheckpointReader::Part(int ordinal) {
  std::unique_ptr<ReadableFile>& part = parts_[ordinal];
  if (part == nullptr) {
    AGG_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file,
                         files_->Open(PathOf(ordinal)));
    const int64_t num_bytes = manifest_.parts[ordinal].num_bytes;
    if (file->num_bytes() != num_bytes) {
      return Damaged(PathOf(ordinal), absl::StrCat("it has ", file->num_bytes(),
                                                   " bytes, not ", num_bytes));
    }
    part = std::move(file);
  }
  return part.get();
}

absl::Status CheckpointReader::Read(ReadableFile* file, int64_t offset,
                                    absl::Span<char> bytes) {
  while (!bytes.empty()) {
    const size_t size = std::min(bytes.size(), static_cast<size_t>(kReadBytes));
    AGG_RETURN_IF_ERROR(file->Read(offset, bytes.first(size)));
    if (progress_ != nullptr) progress_->Note();
    offset += static_cast<int64_t>(size);
    bytes.remove_prefix(size);
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::VerifyPart(int ordinal) {
  AGG_DCHECK(ordinal >= 0 && ordinal < manifest_.num_shards);
  AGG_ASSIGN_OR_RETURN(auto* part, Part(ordinal));
  const CheckpointPart& expected = manifest_.parts[ordinal];
  std::string buffer(std::min(kReadBytes, expected.num_bytes), '\0');
  uint32_t crc = 0;
  auto known = read_[ordinal].begin();
  for (int64_t offset = 0; offset < expected.num_bytes;) {
    if (known != read_[ordinal].end() && known->first == offset) {
      crc = ConcatCrc32c(crc, known->second.crc32c, known->second.num_bytes);
      offset += known->second.num_bytes;
      ++known;
      continue;
    }
    const int64_t end =
        known == read_[ordinal].end() ? expected.num_bytes : known->first;
    const absl::Span<char> piece = absl::MakeSpan(buffer).first(
        static_cast<size_t>(std::min(kReadBytes, end - offset)));
    AGG_RETURN_IF_ERROR(Read(part, offset, piece));
    const auto num_bytes = static_cast<int64_t>(piece.size());
    crc = ConcatCrc32c(crc, Crc32c(ViewOf(piece)), num_bytes);
    offset += num_bytes;
  }
  if (crc == expected.crc32c) return absl::OkStatus();
  return Damaged(PathOf(ordinal), absl::StrCat("its CRC32C is ", crc, ", not ",
                                               expected.crc32c));
}

absl::Status CheckpointReader::ReadSlice(int32_t slice, int array,
                                         absl::Span<float> values) {
  AGG_DCHECK(array >= 0 && array <= manifest_.num_state_arrays);
  const Slice& wanted = plan_.slices[slice];
  const PartLayout& layout = layouts_[wanted.shard];
  AGG_ASSIGN_OR_RETURN(auto* part, Part(wanted.shard));
  const int64_t offset =
      layout.offsets[position_[slice] * layout.num_arrays + array];
  std::string head = PartEntryHead(wanted, array, 0);
  AGG_RETURN_IF_ERROR(Read(part, offset, absl::MakeSpan(head)));
  const absl::Span<char> bytes = BytesOf(values);
  AGG_RETURN_IF_ERROR(
      Read(part, offset + static_cast<int64_t>(head.size()), bytes));
  const uint32_t crc = ExtendCrc32c(kCrc32cInit, head);
  read_[wanted.shard][offset] = {
      static_cast<int64_t>(head.size() + bytes.size()),
      FinishCrc32c(ExtendCrc32c(crc, ViewOf(bytes)))};
  // Everything in the head but the checksum follows from the plan.
  const uint32_t crc32 = Crc32Of(head);
  if (head == PartEntryHead(wanted, array, crc32) &&
      crc32 == PartEntryCrc32(wanted, ViewOf(bytes))) {
    return absl::OkStatus();
  }
  return Damaged(PathOf(wanted.shard),
                 absl::StrCat("its entry ", PartEntryName(wanted, array),
                              " is not what was written"));
}

}  // namespace agg
