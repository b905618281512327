// How fast the CUDA path is meant to be on an H200, against what was measured.
#ifndef AGG_TESTS_BENCH_REPORT_TARGETS_H_
#define AGG_TESTS_BENCH_REPORT_TARGETS_H_

#include <string>

#include "server/base/json.h"

namespace agg {

// The card that the targets are set for is one whose name has this in it.
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

}  // namespace agg

#endif  // AGG_TESTS_BENCH_REPORT_TARGETS_H_
