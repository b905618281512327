// What the client says about a call that failed: gRPC's status as absl::Status
// (proto/status_conversion.h), with the far end and advice.
#ifndef AGG_WORKER_CLIENT_RPC_STATUS_H_
#define AGG_WORKER_CLIENT_RPC_STATUS_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/tls_options.h"

namespace agg {

// The far end of a call, for messages.
struct ShardName {
  int ordinal = 0;
  std::string address;
  TlsOptions tls = {};  // of the connection to it
};

// "shard 1 (10.0.0.2:50051)".
std::string ToString(const ShardName& shard);

// Same code; the message says which shard, in which call, what it answered
// and what to do about it. Where no connection could be made it makes one more
// and says so if TLS is why (server/tls/tls_diagnosis.h): that blocks while the
// name is resolved, and for a second. So who tries again converts what is said
// or returned alone, where that can be known before.
absl::Status FromGrpc(const grpc::Status& status, const ShardName& shard,
                      absl::string_view call);

// Whether the same call may succeed on a new connection: it is UNAVAILABLE,
// or was lost in a way that gRPC reports otherwise. REQUIRES: this end has not
// cancelled the call.
bool IsConnectionLoss(const grpc::Status& status);

// Whether the server runs, and waits for the job's other shards: for a moment
// at each start.
bool IsStarting(const grpc::Status& status);

// Whether it was refused by a limit of the server's (P46): the same call may
// succeed after a while.
bool IsLimit(const grpc::Status& status);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_RPC_STATUS_H_
