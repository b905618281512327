// WriteNpz: libzip makes the archive, AtomicFile puts it in its place.
#include <zip.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/atomic_file.h"
#include "server/base/file_descriptor.h"
#include "server/base/npy_header.h"
#include "server/base/status_macros.h"
#include "worker_client/npz/npz.h"

namespace agg {
namespace {

// 1980-01-01, the first: equal bytes for equal tensors, whatever the time.
constexpr zip_uint16_t kDosDate = 0x21;

// More than the archive has for a member beside its name and its bytes.
constexpr size_t kMaxHeadBytes = 128;

// libzip shortens longer names and reports no error.
constexpr size_t kMaxNameBytes = 0xffff;

struct Discarder {
  void operator()(zip_t* zip) const { zip_discard(zip); }
};
using Archive = std::unique_ptr<zip_t, Discarder>;

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
