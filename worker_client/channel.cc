// The arguments of a gRPC channel, each with its reason.
#include "worker_client/channel.h"

#include <grpcpp/support/channel_arguments.h>

#include "proto/grpc_channel.h"
#include "proto/transport_limits.h"
#include "worker_client/client_token.h"

namespace agg {

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const TlsOptions& tls,
                                           const std::string& token_file) {
  return MakeChannel(address, tls, token_file, address);
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target,
                                           const TlsOptions& tls,
                                           const std::string& token_file,
                                           const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxHttp2FrameBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // Despite its name: the time limit of one connection attempt.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  // 0: no limit. Waiting for a round sends no data for long.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A restarted pod has another address within seconds; the default is 30 s.
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000);
  // Its DNS TXT lookup delays the first connection and finds nothing.
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  return NewGrpcChannel(target, address, tls,
                        TokenFor(token_file, target, tls.any()), arguments);
}

}  // namespace agg
