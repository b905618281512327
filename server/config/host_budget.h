// How much memory and how many CPUs the host grants this process. Apart from
// the options because it reads files of the kernel, which a test replaces.
#ifndef AGG_SERVER_CONFIG_HOST_BUDGET_H_
#define AGG_SERVER_CONFIG_HOST_BUDGET_H_

#include <cstdint>
#include <string>

namespace agg {

struct HostMemory {
  int64_t bytes = 0;   // 0: unknown
  std::string source;  // "cgroup limit", "MemTotal" or "unknown"
};

// The smallest limit of the process's cgroups (v2 or v1) and their parents, or
// the machine's memory if that is less. `root` replaces "/" in tests.
HostMemory GrantedMemory(const std::string& root = "/");

// The smallest memory limit of the process's cgroups and their parents; 0:
// there is none. `root` as above.
int64_t MemoryLimit(const std::string& root = "/");

// 80% of what is granted: the rest is for code, stacks and the transport.
constexpr int64_t DefaultBudget(int64_t granted_bytes) {
  return granted_bytes / 5 * 4;
}

// CPUs in the affinity mask, which taskset and cpusets set; at least 1.
int AffinityCpus();

// The least of `affinity` and the quotas of the process's control groups (v2 or
// v1) and their parents, a part of a CPU rounded up; at least 1. A thread more
// than that would be stopped for the rest of each period. `root` replaces "/"
// in tests.
int GrantedCpus(int affinity, const std::string& root = "/");

}  // namespace agg

#endif  // AGG_SERVER_CONFIG_HOST_BUDGET_H_
