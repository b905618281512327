// Makes every gRPC channel of this project: of workers, of tools, and of shards
// that call each other.
#ifndef AGG_PROTO_GRPC_CHANNEL_H_
#define AGG_PROTO_GRPC_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/call_token.h"
#include "proto/tls_options.h"

namespace agg {

// A channel to `target`, which connects when it is first used, with what all
// channels have in common:
// - A connection of its own: what another channel does must not disturb it.
// - Messages of up to kMaxMessageBytes.
// - No proxy. gRPC would take one of grpc_proxy, https_proxy and http_proxy of
//   the environment, for loopback too, unless no_proxy (in small letters, and
//   without ranges of addresses) has the host. A shard is on the worker's own
//   network, and a proxy for the web cannot reach it.
// - With `tls` the server's certificate has to be for the host of `address`
//   ("host:port"), which `target` may be another way to, or tls.server_name.
// - Its calls present `token` (may be null).
// `arguments` are what this channel wants besides. Thread-safe.
std::shared_ptr<grpc::Channel> NewGrpcChannel(const std::string& target,
                                              const std::string& address,
                                              const TlsOptions& tls,
                                              const CallToken& token,
                                              grpc::ChannelArguments arguments);

// Text behind gRPC's words for why it could not connect, for people: the
// variable of the environment that names a proxy, and that it is not used, "
// (http_proxy of the environment is not used: connections go to the address
// itself)". "": there is none, or `error` is about something else. Without the
// variable's value, which may hold a password.
std::string ProxyRemark(absl::string_view error);

}  // namespace agg

#endif  // AGG_PROTO_GRPC_CHANNEL_H_
