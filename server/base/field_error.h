// Errors about one field, of a configuration, a flag or a call, and about a
// limit that was reached. One format for each, so that people know where to
// look, and programs what to do.
#ifndef AGG_SERVER_BASE_FIELD_ERROR_H_
#define AGG_SERVER_BASE_FIELD_ERROR_H_

#include <cmath>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
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

// A field of a configuration, as text.
struct FieldValue {
  std::string path;  // "optimizer.kind", "groups[1].name"
  std::string value;
  bool compared = false;  // all shards of a job must have the same value
};

// Collects errors, so that who made several mistakes reads of all at once.
// Thread-compatible.
class FieldErrors {
 public:
  // Keeps the error's message, which may have several lines; OK adds nothing.
  void Add(const absl::Status& error) {
    if (error.ok()) return;
    absl::StrAppend(&lines_, lines_.empty() ? "" : "\n", error.message());
  }
  // Sets `*out`, or leaves it and keeps the error. Whether it was set.
  template <typename T>
  bool Take(const absl::StatusOr<T>& value, T* out) {
    Add(value.status());
    if (value.ok()) *out = *value;
    return value.ok();
  }
  bool empty() const { return lines_.empty(); }
  // OK, or INVALID_ARGUMENT with one line per error, in the order of Add.
  absl::Status status() const {
    return empty() ? absl::OkStatus() : absl::InvalidArgumentError(lines_);
  }

 private:
  std::string lines_;
};

inline bool IsFiniteAtLeast(double value, double least) {
  return std::isfinite(value) && value >= least;
}
inline bool IsFinitePositive(double value) {
  return std::isfinite(value) && value > 0.0;
}

// How the message of a LimitError ends, and of no other RESOURCE_EXHAUSTED: by
// it a client knows that the same call may succeed later (P46).
inline constexpr char kTryAgain[] = "; try again later";

// RESOURCE_EXHAUSTED "max_streams of identity "a" is 12; allowed: 12 at a time;
// try again later".
inline absl::Status LimitError(absl::string_view limit, absl::string_view of,
                               absl::string_view value,
                               absl::string_view allowed) {
  return absl::ResourceExhaustedError(absl::StrCat(
      limit, " of ", of, " is ", value, "; allowed: ", allowed, kTryAgain));
}

inline bool IsLimitError(const absl::Status& status) {
  return absl::IsResourceExhausted(status) &&
         absl::EndsWith(status.message(), kTryAgain);
}

}  // namespace agg

#endif  // AGG_SERVER_BASE_FIELD_ERROR_H_
