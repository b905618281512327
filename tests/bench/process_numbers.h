// What benchmarks print of processes besides times.
#ifndef AGG_TESTS_BENCH_PROCESS_NUMBERS_H_
#define AGG_TESTS_BENCH_PROCESS_NUMBERS_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace agg {

// A line of /proc/self/status that is in kilobytes, such as "VmRSS:"; 0: none.
double Mebibytes(absl::string_view field);

// A metric without labels of its own, from the page of the server of this
// host whose metrics port it is; `name` ends with "{". 0: it is not there.
double Metric(int port, absl::string_view name);

// A metric's values by those of one of its labels, from the same page.
std::map<std::string, double> MetricBy(int port, absl::string_view name,
                                       absl::string_view label);

}  // namespace agg

#endif  // AGG_TESTS_BENCH_PROCESS_NUMBERS_H_
