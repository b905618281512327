// Reads control groups of both versions, each up to its root: the smallest
// limit on the way counts.
#include "server/config/host_budget.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace agg {
namespace {

// Version 1 has no word for "no limit", but the largest number of whole pages.
constexpr int64_t kUnlimited = int64_t{1} << 62;

// "" when there is no such file.
std::string ReadKernelFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Whether number `index` of the text (they are separated by spaces) is there
// and positive ("max" and -1 are not); *value gets it.
bool PositiveNumber(absl::string_view text, int index, int64_t* value) {
  const std::vector<std::string> words =
      absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  return index < static_cast<int>(words.size()) &&
         absl::SimpleAtoi(words[index], value) && *value > 0;
}

void AddUpwards(const std::string& hierarchy, std::string group,
                std::vector<std::string>* folders) {
  for (;;) {
    folders->push_back(hierarchy + group);
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return;
    group.resize(slash);
  }
}

// The folders of the process's groups of `controller` ("memory", "cpu"), of
// both versions, and of their parents up to the hierarchies' roots: without a
// slash at the end. Files of version 1 are in some and of version 2 in others.
// A container sees its own group as the root, or the host's path, of which only
// the root is there: each folder on the way up is named.
std::vector<std::string> CgroupFolders(const std::string& root,
                                       absl::string_view controller) {
  std::vector<std::string> folders;
  const std::string mounts = root + "sys/fs/cgroup";
  const std::string groups = ReadKernelFile(root + "proc/self/cgroup");
  for (absl::string_view line :
       absl::StrSplit(groups, '\n', absl::SkipEmpty())) {
    // "0::/path" (v2) or "5:cpu,cpuacct:/path" (v1).
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::string group(absl::StripSuffix(parts[2], "/"));
    if (parts[1].empty()) {
      AddUpwards(mounts, group, &folders);
      continue;
    }
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (std::find(controllers.begin(), controllers.end(), controller) !=
        controllers.end()) {
      AddUpwards(absl::StrCat(mounts, "/", parts[1]), group, &folders);
    }
  }
  return folders;
}

int64_t CgroupLimit(const std::string& root) {
  int64_t limit = 0;
  for (const std::string& folder : CgroupFolders(root, "memory")) {
    for (const char* file : {"/memory.max", "/memory.limit_in_bytes"}) {
      int64_t own = 0;
      if (PositiveNumber(ReadKernelFile(folder + file), 0, &own) &&
          (limit == 0 || own < limit)) {
        limit = own;
      }
    }
  }
  return limit;
}

int64_t TotalMemory(const std::string& root) {
  const std::string meminfo = ReadKernelFile(root + "proc/meminfo");
  for (absl::string_view line :
       absl::StrSplit(meminfo, '\n', absl::SkipEmpty())) {
    if (absl::ConsumePrefix(&line, "MemTotal:")) {
      int64_t kilobytes = 0;
      return PositiveNumber(line, 0, &kilobytes) ? kilobytes * 1024 : 0;
    }
  }
  return 0;
}

// A quota is so many microseconds of all CPUs together in each period. At most
// `cpus`.
int Limited(int cpus, int64_t quota, int64_t period) {
  const int64_t whole = quota / period + (quota % period > 0 ? 1 : 0);
  return static_cast<int>(std::clamp<int64_t>(whole, 1, cpus));
}

}  // namespace

HostMemory GrantedMemory(const std::string& root) {
  const int64_t total = TotalMemory(root);
  const int64_t limit = CgroupLimit(root);
  // cgroup v1 says "no limit" with a number larger than any machine's memory.
  if (limit > 0 && (total == 0 || limit < total)) {
    return {limit, "cgroup limit"};
  }
  if (total > 0) return {total, "MemTotal"};
  return {0, "unknown"};
}

int64_t MemoryLimit(const std::string& root) {
  const int64_t limit = CgroupLimit(root);
  return limit < kUnlimited ? limit : 0;
}

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
