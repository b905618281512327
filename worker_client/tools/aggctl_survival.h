// What keeps a job, as text: the lines of `aggctl status` about recovery,
// copies and checkpoints, and the answers of `aggctl checkpoint`, `restore` and
// `resume`. Pure.
#ifndef AGG_WORKER_CLIENT_TOOLS_AGGCTL_SURVIVAL_H_
#define AGG_WORKER_CLIENT_TOOLS_AGGCTL_SURVIVAL_H_

#include <string>

#include "absl/time/time.h"
#include "proto/admin.pb.h"
#include "proto/agg.pb.h"

namespace agg {

// What is waited for between two epochs, and what keeps the job. "" where
// nothing is configured and nothing is waited for.
std::string SurvivalText(const v1::StatusReply& status, absl::Time now);

std::string CheckpointText(const v1::TakeCheckpointReply& reply);

// What was done, and a line for each checkpoint that some shard sees.
std::string RestoreText(const v1::RestoreReply& reply);
std::string ResumeText(const v1::ResumeReply& reply);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TOOLS_AGGCTL_SURVIVAL_H_
