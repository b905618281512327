// Any bytes as an .npy file: refused, or a header that is written as it is read
// and a matrix of just the values that the header names.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/npy_header.h"
#include "worker_client/npz/npy.h"

namespace {

void TryHeader(absl::string_view bytes) {
  size_t offset = 0;
  const auto layout = agg::ParseNpyHeader(bytes, &offset);
  if (!layout.ok()) return;
  if (offset > bytes.size()) __builtin_trap();
  if (layout->fortran_order) return;
  const std::string again = agg::FormatNpyHeader(layout->type, layout->shape);
  if (again.size() > agg::kMaxNpyHeaderBytes) return;  // many dimensions
  const auto parsed = agg::ParseNpyHeader(again, &offset);
  if (!parsed.ok() || parsed->type != layout->type ||
      parsed->shape != layout->shape || offset != again.size()) {
    __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  TryHeader({reinterpret_cast<const char*>(data), size});
  const int fd = memfd_create("npy", 0);
  if (fd < 0 || write(fd, data, size) != static_cast<ssize_t>(size)) {
    __builtin_trap();
  }
  const auto matrix = agg::ReadNpyMatrix(absl::StrCat("/proc/self/fd/", fd));
  if (matrix.ok() &&
      (matrix->num_rows < 1 || matrix->num_rows > agg::kMaxNpyRows ||
       static_cast<int64_t>(matrix->values.size()) !=
           matrix->num_rows * matrix->num_elements)) {
    __builtin_trap();
  }
  close(fd);
  return 0;
}
