#include "worker_client/npz/npy_writer.h"

#include <cstddef>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace agg {

absl::Status WriteNpyVector(const std::string& path,
                            absl::Span<const double> values) {
  std::string header =
      absl::StrCat("{'descr': '<f8', 'fortran_order': False, 'shape': (",
                   values.size(), ",), }");
  // Data starts at a multiple of 64; the header ends with a newline.
  constexpr size_t kPrefixBytes = 10;
  header.append(63 - (kPrefixBytes + header.size()) % 64, ' ');
  header.push_back('\n');
  std::string prefix("\x93NUMPY\x01\x00", 8);
  prefix.push_back(static_cast<char>(header.size() % 256));
  prefix.push_back(static_cast<char>(header.size() / 256));

  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << prefix << header;
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(double)));
  file.close();
  if (!file) {
    return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
  }
  return absl::OkStatus();
}

}  // namespace agg
