// Times as aggctl shows them: lengths with one digit, moments as UTC.
#ifndef AGG_WORKER_CLIENT_TOOLS_TIME_TEXT_H_
#define AGG_WORKER_CLIENT_TOOLS_TIME_TEXT_H_

#include <cmath>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace agg {

// "" for NaN.
inline std::string Seconds(double seconds) {
  if (std::isnan(seconds)) return "";
  if (seconds < 0.9995) return absl::StrFormat("%.0fms", seconds * 1e3);
  return absl::StrFormat("%.1fs", seconds);
}

// "08:00:17".
inline std::string Clock(absl::Time time) {
  return absl::FormatTime("%H:%M:%S", time, absl::UTCTimeZone());
}

// The moment that many seconds before `now`.
inline std::string Since(double seconds, absl::Time now) {
  return Clock(now - absl::Seconds(seconds));
}

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TOOLS_TIME_TEXT_H_
