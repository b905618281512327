// Errors about one field: of a configuration, a flag or a call. One format for
// all, so that people know where to look.
#ifndef AGG_SERVER_BASE_FIELD_ERROR_H_
#define AGG_SERVER_BASE_FIELD_ERROR_H_

#include <cmath>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace agg {

// INVALID_ARGUMENT "path is value; allowed: ...".
inline absl::Status FieldError(absl::string_view path, absl::string_view value,
                               absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, " is ", value, "; allowed: ", allowed));
}

inline std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", text, "\"");
}

// OK if `ok`.
inline absl::Status CheckField(bool ok, absl::string_view path, double value,
                               absl::string_view allowed) {
  if (ok) return absl::OkStatus();
  return FieldError(path, absl::StrCat(value), allowed);
}

inline bool IsFiniteAtLeast(double value, double least) {
  return std::isfinite(value) && value >= least;
}
inline bool IsFinitePositive(double value) {
  return std::isfinite(value) && value > 0.0;
}

}  // namespace agg

#endif  // AGG_SERVER_BASE_FIELD_ERROR_H_
