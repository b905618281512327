// Compares the file's size with what its header promises before memory is
// allocated. Writes vectors, too.
#include "worker_client/npz/npy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/narrow_float.h"
#include "server/base/atomic_file.h"
#include "server/base/npy_header.h"
#include "server/base/status_macros.h"

namespace agg {

namespace {

// This tool, like the server, runs on little-endian machines only.
template <typename T>
T Load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

double LoadElement(const char* bytes, int element_bytes) {
  if (element_bytes == 2) return FloatOfF16(Load<uint16_t>(bytes));
  if (element_bytes == 4) return Load<float>(bytes);
  return Load<double>(bytes);
}

absl::Status Malformed(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

bool ReadBytes(std::ifstream* file, size_t num_bytes, std::string* bytes) {
  bytes->resize(num_bytes);
  file->read(bytes->data(), static_cast<std::streamsize>(num_bytes));
  return static_cast<size_t>(file->gcount()) == num_bytes;
}

// Leaves the file at the beginning of its data.
absl::StatusOr<NpyLayout> ReadHeader(const std::string& path,
                                     uint64_t file_bytes, std::ifstream* file) {
  std::string bytes;
  if (!ReadBytes(file, std::min<uint64_t>(file_bytes, kMaxNpyHeaderBytes),
                 &bytes)) {
    return Malformed(path, "cannot be read to its end");
  }
  size_t data_offset = 0;
  absl::StatusOr<NpyLayout> layout = ParseNpyHeader(bytes, &data_offset);
  if (!layout.ok()) return Malformed(path, layout.status().message());
  file->seekg(static_cast<std::streamoff>(data_offset));
  return layout;
}

// Bytes of an element, and the shape into `matrix`.
absl::StatusOr<int> CheckHeader(const std::string& path,
                                const NpyLayout& layout, NpyMatrix* matrix) {
  const int element_bytes = layout.type == "<f2"   ? 2
                            : layout.type == "<f4" ? 4
                            : layout.type == "<f8" ? 8
                                                   : 0;
  if (element_bytes == 0) {
    return Malformed(path, absl::StrCat("type '", layout.type,
                                        "' is not one of '<f2', '<f4', '<f8'"));
  }
  if (layout.fortran_order) {
    return Malformed(path, "Fortran order; save it in C order");
  }
  if (layout.shape.size() != 2) {
    return Malformed(path, absl::StrCat(layout.shape.size(),
                                        " dimensions; must be 2, (P, d)"));
  }
  if (layout.shape[0] < 1 || layout.shape[0] > kMaxNpyRows) {
    return Malformed(path, absl::StrCat(layout.shape[0], " rows; must be 1 to ",
                                        kMaxNpyRows));
  }
  matrix->num_rows = static_cast<int>(layout.shape[0]);
  matrix->num_elements = layout.shape[1];
  matrix->is_float64 = element_bytes == 8;
  return element_bytes;
}

}  // namespace

absl::StatusOr<NpyMatrix> ReadNpyMatrix(const std::string& path) {
  std::error_code error;
  const auto file_bytes = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) {
    return absl::NotFoundError(absl::StrCat(
        path, ": cannot be read", error ? ": " : "", error.message()));
  }
  AGG_ASSIGN_OR_RETURN(NpyLayout layout, ReadHeader(path, file_bytes, &file));
  NpyMatrix matrix;
  AGG_ASSIGN_OR_RETURN(int element_bytes, CheckHeader(path, layout, &matrix));

  // In this order nothing can overflow, and nothing is allocated for a header
  // that promises more than the file holds.
  const uint64_t data_bytes = file_bytes - static_cast<uint64_t>(file.tellg());
  const uint64_t rows_bytes = uint64_t{8} * kMaxNpyRows;
  const uint64_t width = static_cast<uint64_t>(matrix.num_elements);
  const bool fits =
      width <= std::numeric_limits<uint64_t>::max() / rows_bytes &&
      width * matrix.num_rows * element_bytes == data_bytes;
  if (!fits) {
    return Malformed(
        path, absl::StrCat("holds ", data_bytes, " bytes of data, but (",
                           matrix.num_rows, ", ", width, ") of '", layout.type,
                           "' needs another number"));
  }
  matrix.values.reserve(width * matrix.num_rows);
  std::string bytes;
  for (int i = 0; i < matrix.num_rows; ++i) {
    if (!ReadBytes(&file, width * element_bytes, &bytes)) {
      return Malformed(path, "truncated in the data");
    }
    for (uint64_t k = 0; k < width; ++k) {
      matrix.values.push_back(
          LoadElement(&bytes[k * element_bytes], element_bytes));
    }
  }
  return matrix;
}

absl::Status WriteNpyVector(const std::string& path,
                            absl::Span<const double> values) {
  std::string bytes =
      FormatNpyHeader("<f8", {static_cast<int64_t>(values.size())});
  bytes.append(reinterpret_cast<const char*>(values.data()),
               values.size() * sizeof(double));
  const absl::Status status = WriteFile(path, bytes);
  if (status.ok()) return status;
  return absl::UnavailableError(
      OutputError("the output", path, status).message());
}

}  // namespace agg
