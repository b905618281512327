// Writes NumPy's header and the values in one go.
#include "worker_client/npz/npy_writer.h"

#include <cstdint>
#include <string>

#include "server/base/atomic_file.h"
#include "server/base/npy_header.h"

namespace agg {

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
