// Writes NumPy's header and the values in one go.
#include "worker_client/npz/npy_writer.h"

#include <cstdint>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "server/base/npy_header.h"

namespace agg {

absl::Status WriteNpyVector(const std::string& path,
                            absl::Span<const double> values) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << FormatNpyHeader("<f8", {static_cast<int64_t>(values.size())});
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(double)));
  file.close();
  if (!file) {
    return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
  }
  return absl::OkStatus();
}

}  // namespace agg
