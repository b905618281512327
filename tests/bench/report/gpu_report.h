// Everything that run_gpu_checks.sh has found out, in one JSON object and one
// table for people.
#ifndef AGG_TESTS_BENCH_REPORT_GPU_REPORT_H_
#define AGG_TESTS_BENCH_REPORT_GPU_REPORT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/base/json.h"

namespace agg {

// The targets say how fast the CUDA path is meant to be on an H200: a card
// whose name has this in it.
inline constexpr char kTargetCard[] = "H200";

// The target of an element of cuda_kernels' "rows": {"at_least", "verdict"}
// (met or missed, by the median of its "share_of_copy"); null if it has none.
Json TargetOfRow(const Json& row);

// All targets, in order: {"name", "what", "at_least" or "at_most", "value",
// "at", "verdict"}.
//
// Of kernels, the value is the smallest median share of the rows that the
// target is for, and "at" says which that is: {"P", "optimizer"}. The verdict
// is missed if one row misses it, else "not measured" if a row is missing, else
// met. `kernels` and `device` are the files of cuda_kernels and round_device,
// or null. The last target is for "device_rows_round_over_traffic" of
// round_device's file: the time of a round from rows on the device, over that
// in which its traffic would go through device memory at the copy's speed.
Json TargetsOf(const Json& kernels, const Json& device);

// Reads what run_gpu_checks.sh has checked, lines "NAME VERDICT SECONDS LIMIT
// PASSED FAILED SKIPPED REASON" with tabs between them: a list of {"name",
// "verdict", "seconds", "limit_s", "cases":
// {"passed", "failed", "skipped"}, "reason"}, in order. A LIMIT of 0, what has
// no cases of its own (0 0 0) and an empty REASON are null. INVALID_ARGUMENT
// with the line's number for a line of another form; a verdict is passed,
// failed or skipped, and only one that has passed may lack a reason.
absl::StatusOr<Json> ReadCheckList(absl::string_view text);

// The version of gpu_report's own form; the bundle's README has its members.
inline constexpr int kReportSchema = 1;

// Joins the parts: "revision", "date", "seconds" and "limit_s" of the run as
// they are in `run`, "host", "card", "checks", the members of the benchmarks'
// files, "targets", and "notes", which say what is missing. "verdict" is failed
// if a check has failed, skipped if none has passed, else passed: a missed
// target fails nothing. `files` has the benchmarks' files by the names of their
// programs, cuda_kernels, round_gpu, round_device and round_loopback, as far as
// there are any. Pure.
Json MakeReport(const Json& run, const Json& host, const Json& card,
                const Json& checks, const Json& files,
                std::vector<std::string> notes);

// The report as Markdown: a heading with host and card, and one table of
// checks, measured rows and targets. Pure.
std::string MarkdownOf(const Json& report);

}  // namespace agg

#endif  // AGG_TESTS_BENCH_REPORT_GPU_REPORT_H_
