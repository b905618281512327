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
// notices a dead host within 30 s. Connects when first used. Its calls present
// the token of `token_file` (ClientOptions::token_file), where it may go there.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const std::string& token_file = "");

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_CHANNEL_H_
