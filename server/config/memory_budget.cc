// Reads control groups of both versions, each up to its root: the smallest
// limit on the way counts.
#include "server/config/memory_budget.h"

#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace agg {
namespace {

// "" when there is no such file.
std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// 0 unless the text begins with a positive number ("max" does not).
int64_t FirstNumber(absl::string_view text) {
  int64_t value = 0;
  const std::string first(
      *absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty()).begin());
  return absl::SimpleAtoi(first, &value) && value > 0 ? value : 0;
}

int64_t LimitIn(const std::string& file) {
  const std::string text = ReadFile(file);
  return text.empty() ? 0 : FirstNumber(text);
}

int64_t Smaller(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return a + b;
  return a < b ? a : b;
}

// The smallest limit from `group` up to the hierarchy's root.
int64_t SmallestLimit(const std::string& hierarchy, std::string group,
                      const std::string& file) {
  int64_t limit = 0;
  for (;;) {
    limit = Smaller(limit, LimitIn(absl::StrCat(hierarchy, group, "/", file)));
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return limit;
    group.resize(slash);
  }
}

int64_t CgroupLimit(const std::string& root) {
  int64_t limit = 0;
  const std::string groups = ReadFile(root + "proc/self/cgroup");
  for (absl::string_view line :
       absl::StrSplit(groups, '\n', absl::SkipEmpty())) {
    // "0::/path" (v2) or "5:memory:/path" (v1).
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::string group(absl::StripSuffix(parts[2], "/"));
    if (parts[1].empty()) {
      limit = Smaller(
          limit, SmallestLimit(root + "sys/fs/cgroup", group, "memory.max"));
    } else if (parts[1] == "memory") {
      limit = Smaller(limit, SmallestLimit(root + "sys/fs/cgroup/memory", group,
                                           "memory.limit_in_bytes"));
    }
  }
  return limit;
}

int64_t TotalMemory(const std::string& root) {
  const std::string meminfo = ReadFile(root + "proc/meminfo");
  for (absl::string_view line :
       absl::StrSplit(meminfo, '\n', absl::SkipEmpty())) {
    if (absl::ConsumePrefix(&line, "MemTotal:")) {
      return FirstNumber(line) * 1024;
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
