// How much memory the host grants this process. Apart from the options because
// it reads files of the kernel, which a test replaces.
#ifndef AGG_SERVER_CONFIG_MEMORY_BUDGET_H_
#define AGG_SERVER_CONFIG_MEMORY_BUDGET_H_

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

// 80% of what is granted: the rest is for code, stacks and the transport.
constexpr int64_t DefaultBudget(int64_t granted_bytes) {
  return granted_bytes / 5 * 4;
}

}  // namespace agg

#endif  // AGG_SERVER_CONFIG_MEMORY_BUDGET_H_
