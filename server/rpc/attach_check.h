// Whether a coordinator and a shard mean the same job: a pure function, apart
// from the service that asks it.
#ifndef AGG_SERVER_RPC_ATTACH_CHECK_H_
#define AGG_SERVER_RPC_ATTACH_CHECK_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/control.pb.h"
#include "server/rpc/shard_identity.h"

namespace agg {

// OK, or FAILED_PRECONDITION naming what differs, with both values. Nobody may
// attach shard 0 over the network: its own process coordinates it.
// INVALID_ARGUMENT for a bad field; of an epoch too, that is over 2^52
// microseconds ahead of `now`: once promised, it would leave the job no higher
// number. Since the bound moves with the clock, there is always one.
absl::Status CheckAttach(const v1::AttachRequest& request,
                         const ShardIdentity& self, absl::Time now);

}  // namespace agg

#endif  // AGG_SERVER_RPC_ATTACH_CHECK_H_
