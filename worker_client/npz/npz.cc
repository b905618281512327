// libzip reads and makes the archive, AtomicFile puts it in its place. What is
// read may come from anywhere, so all sizes are checked before memory is taken
// for them.
#include "worker_client/npz/npz.h"

#include <zip.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "server/base/atomic_file.h"
#include "server/base/file_descriptor.h"
#include "server/base/npy_header.h"
#include "server/base/status_macros.h"

namespace agg {
namespace {

// Deflate packs at most 1032 bytes into one; some room for its own bytes.
constexpr uint64_t kMaxRatio = 1100;

struct ArchiveCloser {
  void operator()(zip_t* zip) const { zip_discard(zip); }
};
using Archive = std::unique_ptr<zip_t, ArchiveCloser>;

struct MemberCloser {
  void operator()(zip_file_t* member) const { zip_fclose(member); }
};
using Member = std::unique_ptr<zip_file_t, MemberCloser>;

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(what);
}

absl::Status Damaged() { return Bad("it is damaged"); }

// What the archive's directory says about a member.
absl::Status CheckMember(const zip_stat_t& info, uint64_t bytes_left) {
  if (info.encryption_method != ZIP_EM_NONE) {
    return Bad("it is encrypted; allowed: no encryption");
  }
  if (info.comp_method != ZIP_CM_STORE && info.comp_method != ZIP_CM_DEFLATE) {
    return Bad(absl::StrCat("its compression method is ", info.comp_method,
                            "; allowed: 0 (stored) and 8 (deflated)"));
  }
  if (info.comp_size > bytes_left) {
    return Bad("the members have more bytes than the file");
  }
  if (info.comp_method == ZIP_CM_STORE
          ? info.size != info.comp_size
          : info.size / kMaxRatio > info.comp_size) {
    return Damaged();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadContents(zip_t* zip, const zip_stat_t& info) {
  const Member member(zip_fopen_index(zip, info.index, 0));
  if (member == nullptr) return Damaged();
  std::string contents(info.size, '\0');
  uint64_t done = 0;
  while (done < info.size) {
    const zip_int64_t num_read =
        zip_fread(member.get(), &contents[done], info.size - done);
    if (num_read <= 0) return Damaged();
    done += static_cast<uint64_t>(num_read);
  }
  // libzip compares the checksum when it meets the end.
  char beyond;
  if (zip_fread(member.get(), &beyond, 1) != 0) return Damaged();
  return contents;
}

// -1: more than a number can say.
int64_t CountElements(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(count, size, &count)) return -1;
  }
  return count;
}

absl::Status ParseNpy(absl::string_view file, NpzTensor* tensor) {
  size_t data_offset = 0;
  AGG_ASSIGN_OR_RETURN(NpyLayout layout, ParseNpyHeader(file, &data_offset));
  if (layout.type != "<f4") {
    return Bad(absl::StrCat("its type is '", layout.type,
                            "'; allowed: '<f4', little-endian float32"));
  }
  if (layout.fortran_order) {
    return Bad("it is in Fortran order; allowed: C order");
  }
  const absl::string_view data = file.substr(data_offset);
  const int64_t count = CountElements(layout.shape);
  if (count < 0 || data.size() % sizeof(float) != 0 ||
      data.size() / sizeof(float) != static_cast<uint64_t>(count)) {
    return Bad(absl::StrCat("it holds ", data.size(),
                            " bytes; allowed: as many as its shape needs"));
  }
  tensor->shape = std::move(layout.shape);
  tensor->values.resize(static_cast<size_t>(count));
  // An empty vector's data may be null, which memcpy must not get.
  if (!data.empty()) {
    std::memcpy(tensor->values.data(), data.data(), data.size());
  }
  return absl::OkStatus();
}

// *bytes_left: how many of the file's bytes the members before this one have
// left. This member's bytes are subtracted. Without that, a small file could
// name one large member a thousand times.
absl::Status ReadMember(zip_t* zip, const zip_stat_t& info,
                        uint64_t* bytes_left, NpzTensor* tensor) {
  AGG_RETURN_IF_ERROR(CheckMember(info, *bytes_left));
  *bytes_left -= info.comp_size;
  const absl::StatusOr<std::string> contents = ReadContents(zip, info);
  return contents.ok() ? ParseNpy(*contents, tensor) : contents.status();
}

absl::StatusOr<std::vector<NpzTensor>> ReadArchive(const std::string& path,
                                                   uint64_t file_bytes) {
  int error = 0;
  const Archive zip(zip_open(path.c_str(), ZIP_RDONLY, &error));
  if (zip == nullptr) {
    return Bad(
        "it is not a complete zip archive; allowed: what numpy.savez "
        "and numpy.savez_compressed write");
  }
  std::vector<NpzTensor> tensors;
  const zip_int64_t count = zip_get_num_entries(zip.get(), 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t info;
    // Raw: libzip would take names without the flag of UTF-8 for those of DOS.
    if (zip_stat_index(zip.get(), static_cast<zip_uint64_t>(i), ZIP_FL_ENC_RAW,
                       &info) != 0) {
      return Bad("its directory is damaged");
    }
    const absl::string_view name = info.name;
    NpzTensor tensor;
    tensor.name = std::string(absl::StripSuffix(name, ".npy"));
    const absl::Status status =
        ReadMember(zip.get(), info, &file_bytes, &tensor);
    if (!status.ok()) {
      return Bad(absl::StrCat("member \"", name, "\": ", status.message()));
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace

absl::StatusOr<std::vector<NpzTensor>> ReadNpz(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status file =
      std::filesystem::status(path, error);
  // This comes before the file is opened: to open a pipe could wait for ever.
  if (std::filesystem::exists(file) &&
      !std::filesystem::is_regular_file(file)) {
    return Bad(absl::StrCat(path, ": not a regular file"));
  }
  const uint64_t file_bytes = std::filesystem::file_size(path, error);
  if (error || !std::ifstream(path).good()) {
    return absl::NotFoundError(absl::StrCat("cannot open ", path));
  }
  absl::StatusOr<std::vector<NpzTensor>> tensors =
      ReadArchive(path, file_bytes);
  if (tensors.ok()) return tensors;
  return Bad(absl::StrCat(path, ": ", tensors.status().message()));
}

namespace {

// 1980-01-01, the first: equal bytes for equal tensors, whatever the time.
constexpr zip_uint16_t kDosDate = 0x21;

// More than the archive has for a member beside its name and its bytes.
constexpr size_t kMaxHeadBytes = 128;

// libzip shortens longer names and reports no error.
constexpr size_t kMaxNameBytes = 0xffff;

// Neither is written to.
zip_buffer_fragment_t Fragment(const void* data, size_t num_bytes) {
  return {static_cast<zip_uint8_t*>(const_cast<void*>(data)), num_bytes};
}

// Adds a member, of which libzip copies nothing: `header` and `tensor` stay
// where they are until the archive is closed.
absl::Status Add(zip_t* zip, const std::string& header,
                 const NpzTensor& tensor) {
  const auto error = [&](absl::string_view what) {
    return absl::UnknownError(
        absl::StrCat("tensor \"", tensor.name, "\": ", what));
  };
  const std::string name = absl::StrCat(tensor.name, ".npy");
  if (name.size() > kMaxNameBytes) return error("its name is too long");
  const zip_buffer_fragment_t pieces[] = {
      Fragment(header.data(), header.size()),
      Fragment(tensor.values.data(), tensor.values.size() * sizeof(float))};
  zip_source_t* const source = zip_source_buffer_fragment(
      zip, pieces, tensor.values.empty() ? 1 : 2, /*freep=*/0);
  if (source == nullptr) return error(zip_strerror(zip));
  const zip_int64_t index =
      zip_file_add(zip, name.c_str(), source, ZIP_FL_ENC_UTF_8);
  if (index < 0) {
    zip_source_free(source);
    return error(zip_strerror(zip));
  }
  const auto member = static_cast<zip_uint64_t>(index);
  // Stored: the bits of a model hardly compress.
  if (zip_set_file_compression(zip, member, ZIP_CM_STORE, 0) != 0 ||
      zip_file_set_dostime(zip, member, 0, kDosDate, 0) != 0) {
    return error(zip_strerror(zip));
  }
  return absl::OkStatus();
}

absl::Status WriteArchive(const std::string& path,
                          const std::vector<NpzTensor>& tensors) {
  int error = 0;
  Archive zip(zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &error));
  if (zip == nullptr) return absl::UnknownError("the archive cannot be opened");
  std::vector<std::string> headers;
  headers.reserve(tensors.size());  // what libzip points at must not move
  int64_t num_bytes = 0;            // at most so many
  for (const NpzTensor& tensor : tensors) {
    headers.push_back(FormatNpyHeader("<f4", tensor.shape));
    AGG_RETURN_IF_ERROR(Add(zip.get(), headers.back(), tensor));
    // With its two heads in the archive.
    num_bytes += static_cast<int64_t>(headers.back().size() +
                                      tensor.values.size() * sizeof(float) +
                                      2 * (tensor.name.size() + kMaxHeadBytes));
  }
  const absl::Status size = CheckFileSize(num_bytes);
  if (!size.ok()) return absl::UnknownError(size.message());
  // This writes all. A failure leaves `zip` to be discarded.
  if (zip_close(zip.get()) != 0) {
    return absl::UnknownError(zip_strerror(zip.get()));
  }
  zip.release();
  return absl::OkStatus();
}

absl::Status Write(const std::string& path,
                   const std::vector<NpzTensor>& tensors) {
  // libzip would remove the file.
  if (tensors.empty()) return absl::UnknownError("there are no tensors");
  AtomicFile file(path);
  AGG_RETURN_IF_ERROR(file.Open());
  AGG_RETURN_IF_ERROR(WriteArchive(file.part_path(), tensors));
  return file.Commit();
}

}  // namespace

absl::Status WriteNpz(const std::string& path,
                      const std::vector<NpzTensor>& tensors) {
  const absl::Status status = Write(path, tensors);
  if (status.ok()) return status;
  const bool refused = !OutputPath(path).ok();
  return absl::UnknownError(absl::StrCat(
      "cannot write ", path, ": ", status.message(),
      refused ? "; allowed: a new path, a file to be replaced, or a link to one"
              : "; check that the folder exists and has room"));
}

}  // namespace agg
