#include "tests/worker_client/npz/npy_files.h"

#include <cmath>
#include <cstdint>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

template <typename T>
void Append(T value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Exact values only: no rounding.
uint16_t Half(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(value);
  if (std::isnan(value)) return 0x7e00;
  if (std::isinf(value)) return sign | 0x7c00;
  if (magnitude == 0.0) return sign;
  if (magnitude < 0x1p-14) {
    return sign | static_cast<uint16_t>(magnitude * 0x1p24);
  }
  const int exponent = std::ilogb(magnitude);
  const int mantissa = static_cast<int>(std::ldexp(magnitude, 10 - exponent));
  return sign |
         static_cast<uint16_t>(((exponent + 15) << 10) + (mantissa - 1024));
}

}  // namespace

std::string NpyData(const Rows& rows, absl::string_view type) {
  std::string bytes;
  for (const std::vector<double>& row : rows) {
    for (const double value : row) {
      if (type == "<f2") Append(Half(value), &bytes);
      if (type == "<f4") Append(static_cast<float>(value), &bytes);
      if (type == "<f8") Append(value, &bytes);
    }
  }
  return bytes;
}

std::string NpyPrefix(int major_version, const std::string& header) {
  std::string bytes = "\x93NUMPY";
  bytes.push_back(static_cast<char>(major_version));
  bytes.push_back('\0');
  const size_t length_bytes = major_version == 1 ? 2 : 4;
  std::string padded = header;
  padded.append(63 - (bytes.size() + length_bytes + header.size()) % 64, ' ');
  padded.push_back('\n');
  if (major_version == 1) {
    Append(static_cast<uint16_t>(padded.size()), &bytes);
  } else {
    Append(static_cast<uint32_t>(padded.size()), &bytes);
  }
  return bytes + padded;
}

std::string NpyHeader(absl::string_view type, absl::string_view shape) {
  return absl::StrCat("{'descr': '", type,
                      "', 'fortran_order': False, 'shape': ", shape, ", }");
}

std::string Npy(const Rows& rows, absl::string_view type, int major_version) {
  const std::string shape =
      absl::StrCat("(", rows.size(), ", ", rows[0].size(), ")");
  return NpyPrefix(major_version, NpyHeader(type, shape)) + NpyData(rows, type);
}

std::string WriteTestFile(const std::string& name, const std::string& bytes) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/", name);
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  EXPECT_TRUE(file.good()) << path;
  return path;
}

std::string ReadTestFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

}  // namespace agg
