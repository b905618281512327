// The files of an audit: round logs and workers' own logs, brought to
// RoundAudit.
#ifndef AGG_SERVER_TOOLS_AUDIT_FILES_H_
#define AGG_SERVER_TOOLS_AUDIT_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/tools/round_audit.h"

namespace agg {

// Audits the round logs, in the order of their rounds, against the workers'
// logs (ClientOptions::audit_log; any order, may be none). NOT_FOUND or
// DATA_LOSS with the path: a file cannot be read, or is no round log.
// FAILED_PRECONDITION: there is nothing to check. What is wrong with the rounds
// is no error here: AuditFindings::violations.
absl::StatusOr<AuditFindings> AuditFiles(
    const std::vector<std::string>& logs,
    const std::vector<std::string>& workers);

}  // namespace agg

#endif  // AGG_SERVER_TOOLS_AUDIT_FILES_H_
