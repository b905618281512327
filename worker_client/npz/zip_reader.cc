#include <zlib.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_client/npz/zip_bytes.h"
#include "worker_client/npz/zip_file.h"

namespace agg {
namespace {

constexpr uint16_t kStored = 0;
constexpr uint16_t kDeflated = 8;
constexpr uint16_t kEncrypted = 1;
constexpr size_t kMaxCommentBytes = 0xffff;

// Where the directory is.
struct Directory {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t count = 0;
};

// The contents of a raw deflate stream; false if it has other than `bytes`.
bool Inflate(absl::string_view stored, uint64_t bytes, std::string* out) {
  constexpr size_t kStep = size_t{1} << 30;  // zlib counts in 32 bits
  z_stream stream = {};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return false;
  out->resize(bytes);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(stored.data()));
  stream.next_out = reinterpret_cast<Bytef*>(&(*out)[0]);
  size_t in_left = stored.size();
  size_t out_left = bytes;
  int result = Z_OK;
  while (result == Z_OK) {
    const auto in_step = static_cast<uInt>(std::min(in_left, kStep));
    const auto out_step = static_cast<uInt>(std::min(out_left, kStep));
    stream.avail_in = in_step;
    stream.avail_out = out_step;
    result = inflate(&stream, Z_NO_FLUSH);
    in_left -= in_step - stream.avail_in;
    out_left -= out_step - stream.avail_out;
  }
  inflateEnd(&stream);
  return result == Z_STREAM_END && out_left == 0;
}

// Takes a Zip64 value for a field that says so.
bool Take64(absl::string_view* extra, uint64_t* field) {
  if (*field != kZipIn64) return true;
  if (extra->size() < 8) return false;
  *field = LittleEndianAt<uint64_t>(*extra, 0);
  extra->remove_prefix(8);
  return true;
}

// The Zip64 part of an entry's extra fields; empty if it has none.
absl::string_view FindZip64Extra(absl::string_view extra) {
  while (extra.size() >= 4) {
    const auto id = LittleEndianAt<uint16_t>(extra, 0);
    const auto bytes = LittleEndianAt<uint16_t>(extra, 2);
    extra.remove_prefix(4);
    if (bytes > extra.size()) break;
    if (id == kZip64ExtraId) return extra.substr(0, bytes);
    extra.remove_prefix(bytes);
  }
  return absl::string_view();
}

}  // namespace

ZipReader::ZipReader(std::string path)
    : path_(std::move(path)), in_(path_, std::ios::binary) {
  in_.seekg(0, std::ios::end);
  const std::streamoff end = in_.tellg();
  if (in_.good()) file_bytes_ = static_cast<uint64_t>(end);
}

absl::StatusOr<ZipReader> ZipReader::Open(const std::string& path) {
  ZipReader reader(path);
  if (!reader.in_.good()) {
    return absl::NotFoundError(absl::StrCat("cannot open ", path));
  }
  absl::Status status = reader.ReadDirectory();
  if (!status.ok()) return status;
  return reader;
}

absl::Status ZipReader::Malformed(absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(path_, " is no zip archive that can be read: ", what));
}

absl::StatusOr<std::string> ZipReader::ReadAt(uint64_t offset, uint64_t bytes) {
  if (offset > file_bytes_ || bytes > file_bytes_ - offset) {
    return Malformed("a record lies beyond its end");
  }
  std::string out(bytes, '\0');
  in_.clear();
  in_.seekg(static_cast<std::streamoff>(offset));
  in_.read(&out[0], static_cast<std::streamsize>(bytes));
  if (!in_.good()) return Malformed("it cannot be read to its end");
  return out;
}

absl::Status ZipReader::ReadDirectory() {
  const uint64_t tail_bytes =
      std::min<uint64_t>(file_bytes_, kZipEndBytes + kMaxCommentBytes);
  absl::StatusOr<std::string> tail =
      ReadAt(file_bytes_ - tail_bytes, tail_bytes);
  if (!tail.ok()) return tail.status();
  std::string signature;
  AppendLittleEndian<uint32_t>(kZipEndSignature, &signature);
  const size_t at = tail->rfind(signature);
  if (at == std::string::npos || tail->size() - at < kZipEndBytes) {
    return Malformed("it has no end record");
  }
  Directory directory;
  directory.count = LittleEndianAt<uint16_t>(*tail, at + 10);
  directory.bytes = LittleEndianAt<uint32_t>(*tail, at + 12);
  directory.offset = LittleEndianAt<uint32_t>(*tail, at + 16);
  const uint64_t end_offset = file_bytes_ - tail_bytes + at;
  if (end_offset >= kZip64LocatorBytes + kZip64EndBytes) {
    absl::StatusOr<std::string> locator =
        ReadAt(end_offset - kZip64LocatorBytes, kZip64LocatorBytes);
    if (!locator.ok()) return locator.status();
    if (LittleEndianAt<uint32_t>(*locator, 0) == kZip64LocatorSignature) {
      absl::StatusOr<std::string> end =
          ReadAt(LittleEndianAt<uint64_t>(*locator, 8), kZip64EndBytes);
      if (!end.ok()) return end.status();
      directory.count = LittleEndianAt<uint64_t>(*end, 32);
      directory.bytes = LittleEndianAt<uint64_t>(*end, 40);
      directory.offset = LittleEndianAt<uint64_t>(*end, 48);
    }
  }
  absl::StatusOr<std::string> records =
      ReadAt(directory.offset, directory.bytes);
  if (!records.ok()) return records.status();
  return ParseEntries(*records, directory.count);
}

absl::Status ZipReader::ParseEntries(absl::string_view directory,
                                     uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    if (directory.size() < kZipCentralBytes ||
        LittleEndianAt<uint32_t>(directory, 0) != kZipCentralSignature) {
      return Malformed("its directory is cut");
    }
    const auto flags = LittleEndianAt<uint16_t>(directory, 8);
    Entry entry;
    entry.method = LittleEndianAt<uint16_t>(directory, 10);
    entry.crc32 = LittleEndianAt<uint32_t>(directory, 16);
    entry.stored_bytes = LittleEndianAt<uint32_t>(directory, 20);
    entry.bytes = LittleEndianAt<uint32_t>(directory, 24);
    entry.offset = LittleEndianAt<uint32_t>(directory, 42);
    const size_t name_bytes = LittleEndianAt<uint16_t>(directory, 28);
    const size_t extra_bytes = LittleEndianAt<uint16_t>(directory, 30);
    const size_t comment_bytes = LittleEndianAt<uint16_t>(directory, 32);
    directory.remove_prefix(kZipCentralBytes);
    if (directory.size() < name_bytes + extra_bytes + comment_bytes) {
      return Malformed("its directory is cut");
    }
    entry.name = std::string(directory.substr(0, name_bytes));
    absl::string_view extra =
        FindZip64Extra(directory.substr(name_bytes, extra_bytes));
    directory.remove_prefix(name_bytes + extra_bytes + comment_bytes);
    if (!Take64(&extra, &entry.bytes) || !Take64(&extra, &entry.stored_bytes) ||
        !Take64(&extra, &entry.offset)) {
      return Malformed("a Zip64 field is missing");
    }
    if ((flags & kEncrypted) != 0 ||
        (entry.method != kStored && entry.method != kDeflated)) {
      return Malformed(absl::StrCat("entry \"", entry.name,
                                    "\" is neither stored nor deflated"));
    }
    entries_.push_back(std::move(entry));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ZipReader::Read(int index) {
  const Entry& entry = entries_[index];
  absl::StatusOr<std::string> header = ReadAt(entry.offset, kZipLocalBytes);
  if (!header.ok()) return header;
  if (LittleEndianAt<uint32_t>(*header, 0) != kZipLocalSignature) {
    return Malformed(absl::StrCat("entry \"", entry.name, "\" is missing"));
  }
  const uint64_t begin = entry.offset + kZipLocalBytes +
                         LittleEndianAt<uint16_t>(*header, 26) +
                         LittleEndianAt<uint16_t>(*header, 28);
  absl::StatusOr<std::string> stored = ReadAt(begin, entry.stored_bytes);
  if (!stored.ok()) return stored;
  std::string contents;
  if (entry.method == kStored) {
    contents = *std::move(stored);
  } else if (entry.bytes / 1100 > entry.stored_bytes ||
             !Inflate(*stored, entry.bytes, &contents)) {
    // Deflate compresses at most 1032 : 1; a larger size is no reason to
    // allocate that much.
    return Malformed(absl::StrCat("entry \"", entry.name, "\" is damaged"));
  }
  const uLong crc =
      crc32_z(crc32_z(0, nullptr, 0),
              reinterpret_cast<const Bytef*>(contents.data()), contents.size());
  if (contents.size() != entry.bytes || crc != entry.crc32) {
    return Malformed(absl::StrCat("entry \"", entry.name, "\" is damaged"));
  }
  return contents;
}

}  // namespace agg
