// How many CPUs the host grants this process. Apart from the options because it
// reads files of the kernel, which a test replaces.
#ifndef AGG_SERVER_CONFIG_CPU_BUDGET_H_
#define AGG_SERVER_CONFIG_CPU_BUDGET_H_

#include <string>

namespace agg {

// CPUs in the affinity mask, which taskset and cpusets set; at least 1.
int AffinityCpus();

// The least of `affinity` and the quotas of the process's control groups (v2 or
// v1) and their parents, a part of a CPU rounded up; at least 1. A thread more
// than that would be stopped for the rest of each period. `root` replaces "/"
// in tests.
int GrantedCpus(int affinity, const std::string& root = "/");

}  // namespace agg

#endif  // AGG_SERVER_CONFIG_CPU_BUDGET_H_
