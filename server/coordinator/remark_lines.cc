// Skipped rounds have their own count, SkippedRun.
#include "server/coordinator/remark_lines.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace agg {
namespace {

// Whether outliers, too few rows to judge them or for Krum, or what narrowing
// loses are all there is to say.
bool IsUsual(const RoundReport& report) {
  const Decision& decision = report.decision;
  const OutlierReport& outliers = decision.outliers;
  const size_t num_excluded = outliers.excluded ? outliers.rows.size() : 0;
  return report.applied &&
         (outliers.too_few_rows || !outliers.rows.empty() ||
          decision.short_of_rows || report.narrowed.worth_saying() ||
          !decision.small_sum_ranks.empty()) &&
         !report.says_equal_rows && !report.not_finite.has_value() &&
         decision.excluded_ranks.size() == num_excluded &&
         !decision.compensated && !decision.adacons_fallback;
}

}  // namespace

std::string RemarkLines::Next(const RoundReport& report, const SkippedRun& run,
                              absl::Time now) {
  if (report.message.empty() || !run.worth_a_line()) return "";
  std::string line = report.message;
  if (run.length() > 1) {
    absl::StrAppend(&line, "; ", run.length(), " rounds in a row were skipped");
  }
  if (!IsUsual(report)) return line;
  if (now - last_usual_ < kUsualLineInterval) {
    ++unsaid_;
    return "";
  }
  last_usual_ = now;
  const uint64_t unsaid = std::exchange(unsaid_, 0);
  if (unsaid > 0) {
    absl::StrAppend(&line, "; so it was in ", unsaid,
                    " rounds since the last such line");
  }
  return line;
}

}  // namespace agg
