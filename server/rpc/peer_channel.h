// The coordinator's connection to another shard: what it takes to notice within
// seconds that the shard is gone, or is there again.
#ifndef AGG_SERVER_RPC_PEER_CHANNEL_H_
#define AGG_SERVER_RPC_PEER_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

namespace agg {

// `address`: "host:port". Does not connect yet.
std::shared_ptr<grpc::Channel> MakePeerChannel(const std::string& address);

}  // namespace agg

#endif  // AGG_SERVER_RPC_PEER_CHANNEL_H_
