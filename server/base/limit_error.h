// The error of a call that came when a limit was reached: the same call may
// succeed later.
#ifndef AGG_SERVER_BASE_LIMIT_ERROR_H_
#define AGG_SERVER_BASE_LIMIT_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace agg {

// How the message of such an error ends, and of no other RESOURCE_EXHAUSTED: by
// it a client knows that it may go on (P46).
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

#endif  // AGG_SERVER_BASE_LIMIT_ERROR_H_
