// What aggctl does for each command: calls, and what is printed of the answers.
// Apart from main so that tests run commands without a process.
#ifndef AGG_WORKER_CLIENT_TOOLS_AGGCTL_COMMANDS_H_
#define AGG_WORKER_CLIENT_TOOLS_AGGCTL_COMMANDS_H_

#include <functional>
#include <string>

#include "proto/admin.pb.h"
#include "worker_client/tools/admin_client.h"
#include "worker_client/tools/aggctl_flags.h"

namespace agg {

// The table of `aggctl audit`. Pure. One row per event, oldest first; what
// cannot be printed is escaped.
std::string AuditTable(const v1::ListAuditReply& reply);

struct AggctlOutput {
  // False: the output is closed.
  std::function<bool(const std::string&)> print;
  bool terminal = false;  // `top` repaints the screen rather than scroll
};

// Prints the text as it may be shown (server/base/utf8.h), whatever a server
// has put into it; kAggctlLocal if that fails.
AggctlResult Emit(const AggctlOutput& output, const std::string& text);

// Everything but help and completion. REQUIRES: flags of ParseAggctlFlags.
AggctlResult RunAggctl(const AggctlFlags& flags, const AggctlOutput& output);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TOOLS_AGGCTL_COMMANDS_H_
