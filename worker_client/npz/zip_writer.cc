#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_client/npz/zip_bytes.h"
#include "worker_client/npz/zip_file.h"

namespace agg {
namespace {

constexpr uint16_t kVersion = 45;  // Zip64
constexpr uint16_t kUtf8Names = 0x800;
constexpr uint16_t kDosDate = 0x21;  // 1980-01-01: equal bytes for equal data

uint32_t Field32(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, kZipIn64));
}

// What both headers of an entry share, from "version needed" on.
std::string CommonFields(uint32_t crc32, uint64_t bytes, size_t name_bytes,
                         size_t extra_bytes) {
  std::string out;
  AppendLittleEndian<uint16_t>(kVersion, &out);
  AppendLittleEndian<uint16_t>(kUtf8Names, &out);
  AppendLittleEndian<uint16_t>(0, &out);  // stored
  AppendLittleEndian<uint16_t>(0, &out);  // time
  AppendLittleEndian<uint16_t>(kDosDate, &out);
  AppendLittleEndian<uint32_t>(crc32, &out);
  AppendLittleEndian<uint32_t>(Field32(bytes), &out);
  AppendLittleEndian<uint32_t>(Field32(bytes), &out);
  AppendLittleEndian<uint16_t>(static_cast<uint16_t>(name_bytes), &out);
  AppendLittleEndian<uint16_t>(static_cast<uint16_t>(extra_bytes), &out);
  return out;
}

std::string Zip64Extra(const std::string& values) {
  std::string out;
  if (values.empty()) return out;
  AppendLittleEndian<uint16_t>(kZip64ExtraId, &out);
  AppendLittleEndian<uint16_t>(static_cast<uint16_t>(values.size()), &out);
  return out + values;
}

}  // namespace

ZipWriter::ZipWriter(std::string path)
    : path_(std::move(path)),
      part_path_(absl::StrCat(path_, ".part")),
      out_(part_path_, std::ios::binary | std::ios::trunc) {}

ZipWriter::~ZipWriter() {
  if (finished_) return;
  out_.close();
  std::remove(part_path_.c_str());
}

void ZipWriter::Write(absl::string_view bytes) {
  out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  offset_ += bytes.size();
}

void ZipWriter::Add(absl::string_view name,
                    absl::Span<const absl::string_view> pieces) {
  Entry entry;
  entry.name = std::string(name);
  entry.offset = offset_;
  uLong crc = crc32_z(0, nullptr, 0);
  for (absl::string_view piece : pieces) {
    if (piece.empty()) continue;  // zlib takes null data for "begin anew"
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(piece.data()),
                  piece.size());
    entry.bytes += piece.size();
  }
  entry.crc32 = static_cast<uint32_t>(crc);
  Write(LocalHeader(entry));
  for (absl::string_view piece : pieces) Write(piece);
  entries_.push_back(std::move(entry));
}

std::string ZipWriter::LocalHeader(const Entry& entry) const {
  std::string sizes;
  if (entry.bytes >= kZipIn64) {
    AppendLittleEndian<uint64_t>(entry.bytes, &sizes);
    AppendLittleEndian<uint64_t>(entry.bytes, &sizes);
  }
  const std::string extra = Zip64Extra(sizes);
  std::string out;
  AppendLittleEndian<uint32_t>(kZipLocalSignature, &out);
  return absl::StrCat(
      out,
      CommonFields(entry.crc32, entry.bytes, entry.name.size(), extra.size()),
      entry.name, extra);
}

std::string ZipWriter::CentralHeader(const Entry& entry) const {
  std::string values;
  if (entry.bytes >= kZipIn64) {
    AppendLittleEndian<uint64_t>(entry.bytes, &values);
    AppendLittleEndian<uint64_t>(entry.bytes, &values);
  }
  if (entry.offset >= kZipIn64) {
    AppendLittleEndian<uint64_t>(entry.offset, &values);
  }
  const std::string extra = Zip64Extra(values);
  std::string out;
  AppendLittleEndian<uint32_t>(kZipCentralSignature, &out);
  AppendLittleEndian<uint16_t>(kVersion, &out);  // made by
  out +=
      CommonFields(entry.crc32, entry.bytes, entry.name.size(), extra.size());
  AppendLittleEndian<uint16_t>(0, &out);  // comment
  AppendLittleEndian<uint16_t>(0, &out);  // disk
  AppendLittleEndian<uint16_t>(0, &out);  // internal attributes
  AppendLittleEndian<uint32_t>(0, &out);  // external attributes
  AppendLittleEndian<uint32_t>(Field32(entry.offset), &out);
  return absl::StrCat(out, entry.name, extra);
}

std::string ZipWriter::EndRecords(uint64_t directory_offset,
                                  uint64_t directory_bytes) const {
  const uint64_t count = entries_.size();
  std::string out;
  if (count >= kZipCountIn64 || directory_offset >= kZipIn64) {
    AppendLittleEndian<uint32_t>(kZip64EndSignature, &out);
    AppendLittleEndian<uint64_t>(kZip64EndBytes - 12, &out);
    AppendLittleEndian<uint16_t>(kVersion, &out);
    AppendLittleEndian<uint16_t>(kVersion, &out);
    AppendLittleEndian<uint32_t>(0, &out);  // this disk
    AppendLittleEndian<uint32_t>(0, &out);  // the directory's
    AppendLittleEndian<uint64_t>(count, &out);
    AppendLittleEndian<uint64_t>(count, &out);
    AppendLittleEndian<uint64_t>(directory_bytes, &out);
    AppendLittleEndian<uint64_t>(directory_offset, &out);
    AppendLittleEndian<uint32_t>(kZip64LocatorSignature, &out);
    AppendLittleEndian<uint32_t>(0, &out);
    AppendLittleEndian<uint64_t>(directory_offset + directory_bytes, &out);
    AppendLittleEndian<uint32_t>(1, &out);  // disks
  }
  const auto count16 =
      static_cast<uint16_t>(std::min<uint64_t>(count, kZipCountIn64));
  AppendLittleEndian<uint32_t>(kZipEndSignature, &out);
  AppendLittleEndian<uint16_t>(0, &out);
  AppendLittleEndian<uint16_t>(0, &out);
  AppendLittleEndian<uint16_t>(count16, &out);
  AppendLittleEndian<uint16_t>(count16, &out);
  AppendLittleEndian<uint32_t>(Field32(directory_bytes), &out);
  AppendLittleEndian<uint32_t>(Field32(directory_offset), &out);
  AppendLittleEndian<uint16_t>(0, &out);  // comment
  return out;
}

absl::Status ZipWriter::Finish() {
  const uint64_t directory_offset = offset_;
  for (const Entry& entry : entries_) Write(CentralHeader(entry));
  Write(EndRecords(directory_offset, offset_ - directory_offset));
  out_.close();
  if (!out_.good() || std::rename(part_path_.c_str(), path_.c_str()) != 0) {
    return absl::UnknownError(absl::StrCat(
        "cannot write ", path_, "; check that the folder exists and has room"));
  }
  finished_ = true;
  return absl::OkStatus();
}

}  // namespace agg
