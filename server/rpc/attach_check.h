// Whether a coordinator and a shard mean the same job: a pure function, apart
// from the service that asks it.
#ifndef AGG_SERVER_RPC_ATTACH_CHECK_H_
#define AGG_SERVER_RPC_ATTACH_CHECK_H_

#include "absl/status/status.h"
#include "proto/control.pb.h"
#include "server/rpc/shard_identity.h"

namespace agg {

// OK, or FAILED_PRECONDITION naming what differs, with both values. Nobody may
// attach shard 0 over the network: its own process coordinates it.
absl::Status CheckAttach(const v1::AttachRequest& request,
                         const ShardIdentity& self);

}  // namespace agg

#endif  // AGG_SERVER_RPC_ATTACH_CHECK_H_
