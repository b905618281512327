// The numbers of the connection stand together, apart from the calls over it.
#include "server/rpc/peer_channel.h"

#include <grpcpp/support/channel_arguments.h>

#include "absl/strings/str_cat.h"
#include "proto/byte_buffer_frame.h"
#include "proto/channel_credentials.h"
#include "proto/grpc_channel.h"
#include "server/tls/tls_diagnosis.h"

namespace agg {

std::shared_ptr<grpc::Channel> MakePeerChannel(const std::string& address,
                                               const TlsOptions& tls,
                                               const CallToken& token) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  args.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000);
  args.SetMaxSendMessageSize(kMaxMessageBytes);
  return NewGrpcChannel(address, address, tls, token, args);
}

absl::Status Explained(const absl::Status& status, const std::string& address,
                       const TlsOptions& tls) {
  if (!absl::IsUnavailable(status)) return status;
  if (!tls.any()) {
    return absl::UnavailableError(
        absl::StrCat(status.message(), ProxyRemark(status.message())));
  }
  const std::string why = WhyNotConnected(
      status.message(), {address, ServerNameOf(tls, address), tls});
  if (why.empty()) return status;
  return absl::UnavailableError(absl::StrCat(why, " (", status.message(), ")"));
}

absl::Status NamedAnswer(const std::string& name, const std::string& self,
                         const absl::Status& status) {
  if (status.ok()) return status;
  if (absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status)) {
    return absl::UnavailableError(
        absl::StrCat(name, " refuses ", self, ": ", status.message()));
  }
  return absl::Status(status.code(),
                      absl::StrCat(name, ": ", status.message()));
}

}  // namespace agg
