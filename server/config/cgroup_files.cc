// A container sees its own group as the root, or the host's path, of which
// only the root is there: each folder on the way up is named.
#include "server/config/cgroup_files.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace agg {
namespace {

void AddUpwards(const std::string& hierarchy, std::string group,
                std::vector<std::string>* folders) {
  for (;;) {
    folders->push_back(hierarchy + group);
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return;
    group.resize(slash);
  }
}

}  // namespace

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

std::string ReadKernelFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

bool PositiveNumber(absl::string_view text, int index, int64_t* value) {
  const std::vector<std::string> words =
      absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  return index < static_cast<int>(words.size()) &&
         absl::SimpleAtoi(words[index], value) && *value > 0;
}

}  // namespace agg
