// The standard library says it by exceptions; they end here.
#include "server/base/try_resize.h"

#include <cstddef>
#include <new>

#include "absl/strings/str_cat.h"

namespace agg {

absl::Status TryResize(int64_t num_values, std::vector<float>* values) {
  const auto size = static_cast<size_t>(num_values);
  if (size <= values->max_size()) {
    try {
      values->resize(size);
      return absl::OkStatus();
    } catch (const std::bad_alloc&) {
    }
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "cannot allocate ", num_values, " float32 numbers of host memory"));
}

}  // namespace agg
