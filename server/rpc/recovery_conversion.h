// Phases of recoveries and checkpoints: their plain values as messages of
// proto/agg.proto, and back.
#ifndef AGG_SERVER_RPC_RECOVERY_CONVERSION_H_
#define AGG_SERVER_RPC_RECOVERY_CONVERSION_H_

#include "absl/status/statusor.h"
#include "proto/control.pb.h"
#include "server/checkpoint/checkpoint_progress.h"
#include "server/round/recovery.h"

namespace agg {

v1::PhaseRequest::Version ToProto(const VersionId& id);
VersionId FromProto(const v1::PhaseRequest::Version& id);

// Makes the message without the checkpoint's text, which may need several
// messages.
v1::PhaseRequest::Recover ToProto(const RecoverPlan& plan);
// INVALID_ARGUMENT naming the field: an unknown action, a replica that would be
// loaded, facts that are too long.
absl::StatusOr<RecoverPlan> FromProto(const v1::PhaseRequest::Recover& recover);

v1::CheckpointProgress ToProto(const CheckpointProgress& progress);
// A stage that this release does not know is a failed checkpoint.
CheckpointProgress FromProto(const v1::CheckpointProgress& progress);

}  // namespace agg

#endif  // AGG_SERVER_RPC_RECOVERY_CONVERSION_H_
