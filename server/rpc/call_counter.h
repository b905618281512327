// Counts the calls of a gRPC server, of all services alike: each ends with one
// status, which gRPC shows to an interceptor before it is sent.
#ifndef AGG_SERVER_RPC_CALL_COUNTER_H_
#define AGG_SERVER_RPC_CALL_COUNTER_H_

#include <grpcpp/server_builder.h>

#include "server/base/call_counts.h"

namespace agg {

// Declares the methods of proto/agg.proto and, with `admin`, of
// proto/admin.proto, and counts every call that the server will answer.
// `counts` outlives the server. A call of a method that no service has is
// answered by gRPC itself and is not seen.
void CountCalls(bool admin, CallCounts* counts, grpc::ServerBuilder* builder);

}  // namespace agg

#endif  // AGG_SERVER_RPC_CALL_COUNTER_H_
