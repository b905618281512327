// Counts the calls of a gRPC server, of all services alike: each ends with one
// status, which gRPC shows to an interceptor before it is sent.
#ifndef AGG_SERVER_RPC_CALL_COUNTER_H_
#define AGG_SERVER_RPC_CALL_COUNTER_H_

#include <grpcpp/support/server_interceptor.h>

#include <memory>

#include "server/base/call_counts.h"

namespace agg {

// Makes an interceptor for a server that declares the methods of
// proto/agg.proto and, with `admin`, of proto/admin.proto, and counts every
// call that the server answers. `counts` outlives the server. A call of a
// method that no service has is answered by gRPC itself and is not seen.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
CountCalls(bool admin, CallCounts* counts);

}  // namespace agg

#endif  // AGG_SERVER_RPC_CALL_COUNTER_H_
