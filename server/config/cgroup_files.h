// Finds the files of this process's control groups. Apart from what reads them
// because limits of memory and of CPUs are found alike.
#ifndef AGG_SERVER_CONFIG_CGROUP_FILES_H_
#define AGG_SERVER_CONFIG_CGROUP_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace agg {

// The folders of the process's groups of `controller` ("memory", "cpu"), of
// both versions, and of their parents up to the hierarchies' roots: without a
// slash at the end. Files of version 1 are in some and of version 2 in others.
// `root` replaces "/" in tests.
std::vector<std::string> CgroupFolders(const std::string& root,
                                       absl::string_view controller);

// "" when there is no such file.
std::string ReadKernelFile(const std::string& path);

// Whether number `index` of the text (they are separated by spaces) is there
// and positive ("max" and -1 are not); *value gets it.
bool PositiveNumber(absl::string_view text, int index, int64_t* value);

}  // namespace agg

#endif  // AGG_SERVER_CONFIG_CGROUP_FILES_H_
