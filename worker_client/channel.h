// How the client opens connections: in one place, so that all have the same
// limits and timeouts.
#ifndef AGG_WORKER_CLIENT_CHANNEL_H_
#define AGG_WORKER_CLIENT_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

namespace agg {

// A channel with a connection of its own to "host:port" or to what
// LocalSocketTarget names, messages of up to
// kMaxMessageBytes, a reconnect backoff of at most 1 s, and a keepalive that
// notices a dead host within 30 s. Connects when first used.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_CHANNEL_H_
