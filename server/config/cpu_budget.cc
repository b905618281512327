// A quota is so many microseconds of all CPUs together in each period.
#include "server/config/cpu_budget.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>

#include "server/config/cgroup_files.h"

namespace agg {
namespace {

// At most `cpus`.
int Limited(int cpus, int64_t quota, int64_t period) {
  const int64_t whole = quota / period + (quota % period > 0 ? 1 : 0);
  return static_cast<int>(std::clamp<int64_t>(whole, 1, cpus));
}

}  // namespace

int AffinityCpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0) return 1;
  return std::max(1, CPU_COUNT(&cpus));
}

int GrantedCpus(int affinity, const std::string& root) {
  int cpus = std::max(1, affinity);
  for (const std::string& folder : CgroupFolders(root, "cpu")) {
    int64_t quota = 0;
    int64_t period = 0;
    const std::string v2 = ReadKernelFile(folder + "/cpu.max");
    if (PositiveNumber(v2, 0, &quota) && PositiveNumber(v2, 1, &period)) {
      cpus = Limited(cpus, quota, period);
    }
    if (PositiveNumber(ReadKernelFile(folder + "/cpu.cfs_quota_us"), 0,
                       &quota) &&
        PositiveNumber(ReadKernelFile(folder + "/cpu.cfs_period_us"), 0,
                       &period)) {
      cpus = Limited(cpus, quota, period);
    }
  }
  return cpus;
}

}  // namespace agg
