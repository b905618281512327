// What both ends of a coordinator's connection know of P24: how long a broken
// one is waited for, and how a shard's own answer is told from a break.
#ifndef AGG_SERVER_RPC_BROKEN_CONNECTION_H_
#define AGG_SERVER_RPC_BROKEN_CONNECTION_H_

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include "absl/time/time.h"

namespace agg {

// Time that a broken connection is waited for, by the clock of the process that
// waits (P31).
inline constexpr absl::Duration kResumeTime = absl::Seconds(5);

// Marks a call, at its beginning: its end will say that it comes from the
// shard. A status code does not say so, since gRPC makes UNAVAILABLE of a
// broken connection, too.
void MarkAnswered(grpc::CallbackServerContext* context);
// Whether a call that has ended was ended by the shard.
bool IsAnswered(const grpc::ClientContext& context);

}  // namespace agg

#endif  // AGG_SERVER_RPC_BROKEN_CONNECTION_H_
