// The flags of aggctl: what they are called, show and set.
#ifndef AGG_WORKER_CLIENT_TOOLS_AGGCTL_FLAG_TABLE_H_
#define AGG_WORKER_CLIENT_TOOLS_AGGCTL_FLAG_TABLE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "worker_client/tools/aggctl_flags.h"

namespace agg {

struct AggctlFlagEntry {
  AggctlFlag shown;
  // False if the value is not allowed.
  std::function<bool(const std::string&, AggctlFlags*)> set;
  absl::string_view allowed;
};
const std::vector<AggctlFlagEntry>& AggctlFlagTable();

// The rules' names.
std::vector<absl::string_view> AggctlRules();

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TOOLS_AGGCTL_FLAG_TABLE_H_
