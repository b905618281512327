// How a client gets in. Apart from coordinator_session.h because here nothing
// exists yet that could be lost: a failure is waited out until connect_timeout.
#ifndef AGG_WORKER_CLIENT_JOIN_CALL_H_
#define AGG_WORKER_CLIENT_JOIN_CALL_H_

#include <grpcpp/channel.h>

#include <memory>

#include "absl/status/statusor.h"
#include "proto/agg.grpc.pb.h"
#include "worker_client/client_types.h"
#include "worker_client/rpc_status.h"

namespace agg {

// What every Join of this client says.
v1::JoinRequest MakeJoinRequest(const ClientOptions& options);

// Joins as a worker, or as an observer asks for the job's description. Tries
// again while the coordinator cannot be reached or waits for its shards, at
// most for options.connect_timeout; options.on_event hears why. UNAVAILABLE
// with the last reason when the time is over, and what the coordinator answers.
absl::StatusOr<v1::JoinReply> JoinJob(const ClientOptions& options,
                                      const ShardName& coordinator,
                                      grpc::Channel* channel,
                                      v1::Coordinator::StubInterface* stub);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_JOIN_CALL_H_
