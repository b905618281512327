#include "worker_client/npz/npy_reader.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace agg {
namespace {

constexpr absl::string_view kMagic("\x93NUMPY", 6);
// NumPy itself writes less than 200 bytes and refuses more than 10000.
constexpr uint32_t kMaxHeaderBytes = 65536;

// What the header's dictionary says.
struct Header {
  std::string type;  // "<f4"
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

// Takes the Python literal {'descr': '<f4', 'fortran_order': False,
// 'shape': (2, 3), } apart. Each Parse* returns false at the first surprise.
class HeaderParser {
 public:
  explicit HeaderParser(absl::string_view text) : text_(text) {}

  bool Parse(Header* header) {
    if (!Take("{")) return false;
    int seen = 0;
    while (!Take("}")) {
      std::string key;
      if (!ParseString(&key) || !Take(":")) return false;
      const int bit = key == "descr"           ? 1
                      : key == "fortran_order" ? 2
                      : key == "shape"         ? 4
                                               : 0;
      if (bit == 0 || (seen & bit) != 0) return false;
      seen |= bit;
      if (bit == 1 && !ParseString(&header->type)) return false;
      if (bit == 2 && !ParseBool(&header->fortran_order)) return false;
      if (bit == 4 && !ParseShape(&header->shape)) return false;
      if (!Take(",") && !Peek("}")) return false;
    }
    SkipSpace();
    return seen == 7 && text_.empty();
  }

 private:
  void SkipSpace() { text_ = absl::StripLeadingAsciiWhitespace(text_); }

  bool Peek(absl::string_view token) {
    SkipSpace();
    return text_.substr(0, token.size()) == token;
  }

  bool Take(absl::string_view token) {
    if (!Peek(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }

  bool ParseString(std::string* value) {
    const absl::string_view quote = Peek("'") ? "'" : "\"";
    if (!Take(quote)) return false;
    const size_t end = text_.find(quote);
    if (end == absl::string_view::npos) return false;
    *value = std::string(text_.substr(0, end));
    text_.remove_prefix(end + 1);
    return true;
  }

  bool ParseBool(bool* value) {
    *value = Peek("True");
    return Take("True") || Take("False");
  }

  bool ParseShape(std::vector<int64_t>* shape) {
    if (!Take("(")) return false;
    while (!Take(")")) {
      SkipSpace();
      size_t length = 0;
      while (length < text_.size() && absl::ascii_isdigit(text_[length])) {
        ++length;
      }
      int64_t dimension = 0;
      if (!absl::SimpleAtoi(text_.substr(0, length), &dimension)) return false;
      text_.remove_prefix(length);
      shape->push_back(dimension);
      if (!Take(",") && !Peek(")")) return false;
    }
    return true;
  }

  absl::string_view text_;
};

double DoubleOfHalf(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int mantissa = half & 1023;
  double value = 0.0;
  if (exponent == 31) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, -24);
  } else {
    value = std::ldexp(1024 + mantissa, exponent - 25);
  }
  return (half & 0x8000) != 0 ? -value : value;
}

// This tool, like the server, runs on little-endian machines only.
template <typename T>
T Load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

double LoadElement(const char* bytes, int element_bytes) {
  if (element_bytes == 2) return DoubleOfHalf(Load<uint16_t>(bytes));
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

absl::StatusOr<Header> ReadHeader(const std::string& path,
                                  std::ifstream* file) {
  std::string bytes;
  if (!ReadBytes(file, 8, &bytes) || bytes.substr(0, 6) != kMagic) {
    return Malformed(path, "not a .npy file (bad magic)");
  }
  const int major = static_cast<unsigned char>(bytes[6]);
  if (major < 1 || major > 3 || bytes[7] != 0) {
    return Malformed(path,
                     absl::StrCat(".npy format ", major, ".",
                                  int{static_cast<unsigned char>(bytes[7])},
                                  " is not one of 1.0, 2.0, 3.0"));
  }
  const size_t length_bytes = major == 1 ? 2 : 4;
  if (!ReadBytes(file, length_bytes, &bytes)) {
    return Malformed(path, "truncated in the header");
  }
  const uint32_t header_bytes =
      major == 1 ? Load<uint16_t>(bytes.data()) : Load<uint32_t>(bytes.data());
  if (header_bytes > kMaxHeaderBytes) {
    return Malformed(
        path, absl::StrCat("header of ", header_bytes, " bytes, at most ",
                           kMaxHeaderBytes, " allowed"));
  }
  if (!ReadBytes(file, header_bytes, &bytes)) {
    return Malformed(path, "truncated in the header");
  }
  Header header;
  if (!HeaderParser(bytes).Parse(&header)) {
    return Malformed(path, "the header is no valid .npy dictionary");
  }
  return header;
}

// Bytes of an element, and the shape into `matrix`.
absl::StatusOr<int> CheckHeader(const std::string& path, const Header& header,
                                NpyMatrix* matrix) {
  const int element_bytes = header.type == "<f2"   ? 2
                            : header.type == "<f4" ? 4
                            : header.type == "<f8" ? 8
                                                   : 0;
  if (element_bytes == 0) {
    return Malformed(path, absl::StrCat("type '", header.type,
                                        "' is not one of '<f2', '<f4', '<f8'"));
  }
  if (header.fortran_order) {
    return Malformed(path, "Fortran order; save it in C order");
  }
  if (header.shape.size() != 2) {
    return Malformed(path, absl::StrCat(header.shape.size(),
                                        " dimensions; must be 2, (P, d)"));
  }
  if (header.shape[0] < 1 || header.shape[0] > kMaxNpyRows) {
    return Malformed(path, absl::StrCat(header.shape[0], " rows; must be 1 to ",
                                        kMaxNpyRows));
  }
  matrix->num_rows = static_cast<int>(header.shape[0]);
  matrix->num_elements = header.shape[1];
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
  absl::StatusOr<Header> header = ReadHeader(path, &file);
  if (!header.ok()) return header.status();
  NpyMatrix matrix;
  absl::StatusOr<int> element_bytes = CheckHeader(path, *header, &matrix);
  if (!element_bytes.ok()) return element_bytes.status();

  // In this order nothing can overflow, and nothing is allocated for a header
  // that promises more than the file holds.
  const uint64_t data_bytes = file_bytes - static_cast<uint64_t>(file.tellg());
  const uint64_t rows_bytes = uint64_t{8} * kMaxNpyRows;
  const uint64_t width = static_cast<uint64_t>(matrix.num_elements);
  const bool fits =
      width <= std::numeric_limits<uint64_t>::max() / rows_bytes &&
      width * matrix.num_rows * *element_bytes == data_bytes;
  if (!fits) {
    return Malformed(
        path, absl::StrCat("holds ", data_bytes, " bytes of data, but (",
                           matrix.num_rows, ", ", width, ") of '", header->type,
                           "' needs another number"));
  }
  matrix.values.reserve(width * matrix.num_rows);
  std::string bytes;
  for (int i = 0; i < matrix.num_rows; ++i) {
    if (!ReadBytes(&file, width * *element_bytes, &bytes)) {
      return Malformed(path, "truncated in the data");
    }
    for (uint64_t k = 0; k < width; ++k) {
      matrix.values.push_back(
          LoadElement(&bytes[k * *element_bytes], *element_bytes));
    }
  }
  return matrix;
}

}  // namespace agg
