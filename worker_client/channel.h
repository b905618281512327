// How the client opens connections: in one place, so that all have the same
// limits and timeouts.
#ifndef AGG_WORKER_CLIENT_CHANNEL_H_
#define AGG_WORKER_CLIENT_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "proto/tls_options.h"

namespace agg {

// Makes a channel with a connection of its own to `target`, "host:port" or what
// LocalSocketTarget names, messages of up to kMaxMessageBytes, a reconnect
// backoff of at most 1 s, and a keepalive that notices a dead host within 30 s.
// Connects when first used. With `tls` the server's certificate has to be for
// the host of `address`, which `target` is another way to, or for
// tls.server_name. Its calls present the token of `token_file`
// (worker_client/client_token.h), where it may go there.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target,
                                           const TlsOptions& tls,
                                           const std::string& token_file,
                                           const std::string& address);
// Makes a channel whose target and address are the same.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const TlsOptions& tls = {},
                                           const std::string& token_file = "");

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_CHANNEL_H_
