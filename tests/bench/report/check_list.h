// What run_gpu_checks.sh has checked, one line each.
#ifndef AGG_TESTS_BENCH_REPORT_CHECK_LIST_H_
#define AGG_TESTS_BENCH_REPORT_CHECK_LIST_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/base/json.h"

namespace agg {

// Of lines "NAME VERDICT SECONDS LIMIT PASSED FAILED SKIPPED REASON" with tabs
// between them: a list of {"name", "verdict", "seconds", "limit_s", "cases":
// {"passed", "failed", "skipped"}, "reason"}, in order. A LIMIT of 0, what has
// no cases of its own (0 0 0) and an empty REASON are null. INVALID_ARGUMENT
// with the line's number for a line of another form; a verdict is passed,
// failed or skipped, and only one that has passed may lack a reason.
absl::StatusOr<Json> ReadCheckList(absl::string_view text);

}  // namespace agg

#endif  // AGG_TESTS_BENCH_REPORT_CHECK_LIST_H_
