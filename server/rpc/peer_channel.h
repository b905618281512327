// The coordinator's connection to another shard: what it takes to notice within
// seconds that the shard is gone, or is there again.
#ifndef AGG_SERVER_RPC_PEER_CHANNEL_H_
#define AGG_SERVER_RPC_PEER_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "proto/call_token.h"

namespace agg {

// `address`: "host:port". Does not connect yet. `token` (may be null) gives
// what each call presents (proto/call_token.h).
std::shared_ptr<grpc::Channel> MakePeerChannel(const std::string& address,
                                               const CallToken& token);

}  // namespace agg

#endif  // AGG_SERVER_RPC_PEER_CHANNEL_H_
