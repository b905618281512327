#include "tests/worker_client/npz/malformed_npy.h"

#include "tests/worker_client/npz/npy_files.h"

namespace agg {
namespace {

// A file of 2 x 3 float32 whose header is `header`.
std::string WithHeader(const std::string& header) {
  return NpyPrefix(1, header) + NpyData({{1, 2, 3}, {4, 5, 6}}, "<f4");
}

std::string WithShape(const std::string& shape) {
  return WithHeader(NpyHeader("<f4", shape));
}

std::string WithType(const std::string& type) {
  return WithHeader(NpyHeader(type, "(2, 3)"));
}

}  // namespace

std::vector<MalformedNpy> MalformedNpyFiles() {
  const std::string good = WithShape("(2, 3)");
  std::string wrong_magic = good;
  wrong_magic[0] = 'X';
  std::string version_nine = good;
  version_nine[6] = 9;
  std::string minor_version = good;
  minor_version[7] = 1;
  const std::string huge_length("\x93NUMPY\x02\x00\xff\xff\xff\x7f", 12);
  const char kDictionary[] = "not a valid .npy dictionary";
  const char kMagic[] = "not a .npy file";
  const char kBytes[] = "bytes of data";
  const char kRows[] = "rows; must be 1 to 4096";
  return {
      {"empty", "", kMagic},
      {"text", "gradient,1,2,3\n", kMagic},
      {"magic", wrong_magic, kMagic},
      {"zip", "PK\x03\x04 and more bytes", kMagic},
      {"version", version_nine, "format 9.0"},
      {"minor", minor_version, "format 1.1"},
      {"no_length", good.substr(0, 9), "truncated in the header"},
      {"half_header", good.substr(0, 40), "truncated in the header"},
      {"huge_header", huge_length, "header of 2147483647 bytes"},
      {"short_data", good.substr(0, good.size() - 1), kBytes},
      {"no_data", good.substr(0, good.size() - 24), kBytes},
      {"trailing", good + "x", kBytes},
      {"big_endian", WithType(">f4"), "type '>f4'"},
      {"integers", WithType("<i4"), "type '<i4'"},
      {"objects", WithType("|O"), "type '|O'"},
      {"long_double", WithType("<f16"), "type '<f16'"},
      {"fortran",
       WithHeader("{'descr': '<f4', 'fortran_order': True, "
                  "'shape': (2, 3), }"),
       "Fortran order"},
      {"vector", WithShape("(6,)"), "1 dimensions"},
      {"scalar", WithShape("()"), "0 dimensions"},
      {"cube", WithShape("(1, 2, 3)"), "3 dimensions"},
      {"no_rows", WithShape("(0, 3)"), kRows},
      {"transposed", WithShape("(1000000, 2)"), kRows},
      {"negative", WithShape("(-2, 3)"), kDictionary},
      {"overflow", WithShape("(2, 9223372036854775807)"), kBytes},
      {"wraps", WithShape("(4, 4611686018427387904)"), kBytes},
      {"too_large", WithShape("(2, 99999999999999999999)"), kDictionary},
      {"no_shape", WithHeader("{'descr': '<f4', 'fortran_order': False, }"),
       kDictionary},
      {"twice",
       WithHeader("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, "
                  "'shape': (2, 3), }"),
       kDictionary},
      {"unknown_key",
       WithHeader("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), "
                  "'more': 1, }"),
       kDictionary},
      {"structured",
       WithHeader("{'descr': [('a', '<f4')], 'fortran_order': False, "
                  "'shape': (2, 3), }"),
       kDictionary},
      {"no_brace", WithHeader("'descr': '<f4'"), kDictionary},
      {"open", WithHeader("{'descr': '<f4"), kDictionary},
      {"after", WithHeader(NpyHeader("<f4", "(2, 3)") + " x"), kDictionary},
  };
}

}  // namespace agg
