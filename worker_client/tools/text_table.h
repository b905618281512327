// Columns of text for a terminal, and the times in them.
#ifndef AGG_WORKER_CLIENT_TOOLS_TEXT_TABLE_H_
#define AGG_WORKER_CLIENT_TOOLS_TEXT_TABLE_H_

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace agg {

class TextTable {
 public:
  struct Column {
    std::string name;
    bool right = false;    // numbers
    size_t min_width = 0;  // in characters, so that batches align
  };

  explicit TextTable(std::vector<Column> columns);

  // One cell per column, as Shown (utf8.h) has it; an empty one is shown as
  // "-".
  void AddRow(const std::vector<std::string>& cells);

  // Two spaces between columns, none at the ends of lines; a line break after
  // each row.
  std::string ToString(bool header = true) const;

 private:
  std::string Line(const std::vector<std::string>& cells,
                   const std::vector<size_t>& widths) const;

  const std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// A length of time as aggctl shows it: with one digit, "" for NaN.
inline std::string Seconds(double seconds) {
  if (std::isnan(seconds)) return "";
  if (seconds < 0.9995) return absl::StrFormat("%.0fms", seconds * 1e3);
  return absl::StrFormat("%.1fs", seconds);
}

// A moment as aggctl shows it, in UTC: "08:00:17".
inline std::string Clock(absl::Time time) {
  return absl::FormatTime("%H:%M:%S", time, absl::UTCTimeZone());
}

// The moment that many seconds before `now`.
inline std::string Since(double seconds, absl::Time now) {
  return Clock(now - absl::Seconds(seconds));
}

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TOOLS_TEXT_TABLE_H_
