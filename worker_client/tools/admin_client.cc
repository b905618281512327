// Each call is the same: a context with a deadline, the stub, the explanation
// of a failure.
#include "worker_client/tools/admin_client.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/channel_credentials.h"
#include "proto/grpc_channel.h"
#include "server/base/utf8.h"
#include "server/tls/tls_diagnosis.h"
#include "worker_client/channel.h"
#include "worker_client/tools/text_table.h"

namespace agg {

AdminClient::AdminClient(const std::string& address, absl::Duration timeout,
                         const TlsOptions& tls, const std::string& token_file)
    : address_(address),
      timeout_(timeout),
      tls_(tls),
      token_file_(token_file),
      channel_(MakeChannel(address, tls, token_file)),
      coordinator_(v1::Coordinator::NewStub(channel_)),
      admin_(v1::Admin::NewStub(channel_)),
      health_(grpc::health::v1::Health::NewStub(channel_)) {}

AggctlResult AdminClient::Explain(const grpc::Status& status,
                                  absl::Duration timeout) const {
  if (status.ok()) return {};
  // Whether it was the server that said so, or nobody was there to say it.
  const bool connected = channel_->GetState(false) == GRPC_CHANNEL_READY;
  const std::string message = Shown(status.error_message());
  if (!connected) {
    const std::string why = WhyNotConnected(
        message, {address_, ServerNameOf(tls_, address_), tls_});
    if (!why.empty()) return {kAggctlUnreachable, why};
    return {kAggctlUnreachable, absl::StrCat("cannot reach ", address_, ": ",
                                             message, ProxyRemark(message))};
  }
  switch (status.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return {kAggctlTimedOut,
              absl::StrCat(address_, " has not answered within ",
                           absl::FormatDuration(timeout))};
    case grpc::StatusCode::UNIMPLEMENTED:
      return {
          kAggctlRefused,
          absl::StrCat(address_, " does not serve this: it runs with ",
                       "--admin=false, is of an older release, or is not an ",
                       "agg_server")};
    default:
      return {
          kAggctlRefused,
          absl::StrCat(absl::StatusCodeToString(
                           static_cast<absl::StatusCode>(status.error_code())),
                       ": ", message)};
  }
}

AggctlResult AdminClient::Call(
    const std::function<grpc::Status(grpc::ClientContext*)>& call,
    absl::Duration timeout) {
  const absl::Status token = CheckToken(token_file_, address_, tls_.any());
  if (!token.ok()) return {kAggctlLocal, std::string(token.message())};
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  return Explain(call(&context), timeout);
}

AggctlResult AdminClient::Status(v1::StatusReply* reply) {
  return Call(
      [&](grpc::ClientContext* context) {
        return coordinator_->GetStatus(context, v1::StatusRequest(), reply);
      },
      timeout_);
}

AggctlResult AdminClient::Health(const std::string& service) {
  using grpc::health::v1::HealthCheckResponse;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  HealthCheckResponse reply;
  const AggctlResult result = Call(
      [&](grpc::ClientContext* context) {
        return health_->Check(context, request, &reply);
      },
      timeout_);
  if (!result.ok() || reply.status() == HealthCheckResponse::SERVING) {
    return result;
  }
  return {kAggctlRefused,
          absl::StrCat(address_, " is not SERVING",
                       service.empty() ? "" : " " + Shown(service))};
}

}  // namespace agg
