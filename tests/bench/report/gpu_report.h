// Everything that run_gpu_checks.sh has found out, in one JSON object and one
// table for people.
#ifndef AGG_TESTS_BENCH_REPORT_GPU_REPORT_H_
#define AGG_TESTS_BENCH_REPORT_GPU_REPORT_H_

#include <string>
#include <vector>

#include "server/base/json.h"

namespace agg {

// Of gpu_report's own form; the bundle's README has its members.
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
