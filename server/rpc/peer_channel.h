// The coordinator's connection to another shard: what it takes to notice within
// seconds that the shard is gone, or is there again.
#ifndef AGG_SERVER_RPC_PEER_CHANNEL_H_
#define AGG_SERVER_RPC_PEER_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "proto/call_token.h"
#include "proto/tls_options.h"

namespace agg {

// `address`: "host:port". Does not connect yet. `token` (may be null) gives
// what each call presents (proto/call_token.h).
std::shared_ptr<grpc::Channel> MakePeerChannel(const std::string& address,
                                               const TlsOptions& tls,
                                               const CallToken& token);

// `status`, and why there is no connection, if that is the reason and it can be
// found (server/tls/tls_diagnosis.h). May take a second then. As it is without
// TLS.
absl::Status Explained(const absl::Status& status, const std::string& address,
                       const TlsOptions& tls);

// An error that the shard `name` has answered, with its name in front. That it
// refuses the caller, which is `self`, is UNAVAILABLE: passed on as it is, a
// worker would take it for the answer to its own credential. OK stays OK.
absl::Status NamedAnswer(const std::string& name, const std::string& self,
                         const absl::Status& status);

}  // namespace agg

#endif  // AGG_SERVER_RPC_PEER_CHANNEL_H_
