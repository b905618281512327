// The table of `aggctl audit`. Pure.
#ifndef AGG_WORKER_CLIENT_TOOLS_AGGCTL_AUDIT_H_
#define AGG_WORKER_CLIENT_TOOLS_AGGCTL_AUDIT_H_

#include <string>

#include "proto/admin.pb.h"

namespace agg {

// One row per event, oldest first; what cannot be printed is escaped.
std::string AuditTable(const v1::ListAuditReply& reply);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TOOLS_AGGCTL_AUDIT_H_
