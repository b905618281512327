// Reads control groups of both versions, each up to its root: the smallest
// limit on the way counts.
#include "server/config/memory_budget.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "server/config/cgroup_files.h"

namespace agg {
namespace {

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

}  // namespace agg
