// The one caller of gRPC's functions that create channels.
#include "proto/grpc_channel.h"

#include <grpcpp/create_channel.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/byte_buffer_frame.h"
#include "proto/channel_credentials.h"
#include "proto/grpc_transport.h"

namespace agg {

std::shared_ptr<grpc::Channel> NewGrpcChannel(
    const std::string& target, const std::string& address,
    const TlsOptions& tls, const CallToken& token,
    grpc::ChannelArguments arguments) {
  // Otherwise two channels to one address share a connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  SetServerName(tls, address, &arguments);
  KeepGrpcInitialized();
  return grpc::experimental::CreateCustomChannelWithInterceptors(
      target, MakeChannelCredentials(tls), arguments, TokenInterceptors(token));
}

std::string ProxyRemark(absl::string_view error) {
  if (!absl::StrContains(error, "failed to connect") &&
      !absl::StrContains(error, "DNS resolution failed")) {
    return "";
  }
  // gRPC's own, in its order, and what people set for other programs.
  for (const char* name :
       {"grpc_proxy", "https_proxy", "http_proxy", "HTTPS_PROXY", "HTTP_PROXY",
        "all_proxy", "ALL_PROXY"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    return absl::StrCat(" (", name,
                        " of the environment is not used: connections go to "
                        "the address itself)");
  }
  return "";
}

}  // namespace agg
