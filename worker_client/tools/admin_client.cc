// Each call is the same few lines: a context with a deadline, the stub, the
// explanation of a failure.
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

template <typename Stub, typename Request, typename Reply>
AggctlResult AdminClient::Call(
    Stub* stub,
    grpc::Status (Stub::*call)(grpc::ClientContext*, const Request&, Reply*),
    const Request& request, Reply* reply, absl::Duration timeout) {
  const absl::Status token = CheckToken(token_file_, address_, tls_.any());
  if (!token.ok()) return {kAggctlLocal, std::string(token.message())};
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  return Explain((stub->*call)(&context, request, reply), timeout);
}

AggctlResult AdminClient::Status(v1::StatusReply* reply) {
  return Call(coordinator_.get(), &v1::Coordinator::Stub::GetStatus,
              v1::StatusRequest(), reply);
}

AggctlResult AdminClient::Tensors(v1::ListTensorsReply* reply) {
  return Call(admin_.get(), &v1::Admin::Stub::ListTensors,
              v1::ListTensorsRequest(), reply);
}

AggctlResult AdminClient::Rounds(const v1::ListRoundsRequest& request,
                                 v1::ListRoundsReply* reply) {
  return Call(admin_.get(), &v1::Admin::Stub::ListRounds, request, reply);
}

AggctlResult AdminClient::SetRule(const v1::SetRuleRequest& request,
                                  v1::SetRuleReply* reply) {
  return Call(admin_.get(), &v1::Admin::Stub::SetRule, request, reply);
}

AggctlResult AdminClient::Evict(const v1::EvictWorkerRequest& request,
                                v1::EvictWorkerReply* reply) {
  return Call(admin_.get(), &v1::Admin::Stub::EvictWorker, request, reply);
}

AggctlResult AdminClient::Drain(v1::DrainReply* reply) {
  return Call(admin_.get(), &v1::Admin::Stub::Drain, v1::DrainRequest(), reply);
}

AggctlResult AdminClient::TakeCheckpoint(absl::Duration wait,
                                         v1::TakeCheckpointReply* reply) {
  return Call(admin_.get(), &v1::Admin::Stub::TakeCheckpoint,
              v1::TakeCheckpointRequest(), reply, wait);
}

AggctlResult AdminClient::Restore(const std::string& checkpoint,
                                  absl::Duration wait,
                                  v1::RestoreReply* reply) {
  v1::RestoreRequest request;
  request.set_checkpoint(checkpoint);
  return Call(admin_.get(), &v1::Admin::Stub::Restore, request, reply,
              checkpoint.empty() ? timeout_ : wait);
}

AggctlResult AdminClient::Resume(absl::Duration wait, v1::ResumeReply* reply) {
  return Call(admin_.get(), &v1::Admin::Stub::Resume, v1::ResumeRequest(),
              reply, wait);
}

AggctlResult AdminClient::SetLogLevel(const std::string& level,
                                      v1::SetLogLevelReply* reply) {
  v1::SetLogLevelRequest request;
  request.set_level(level);
  return Call(admin_.get(), &v1::Admin::Stub::SetLogLevel, request, reply);
}

AggctlResult AdminClient::Version(v1::GetVersionReply* reply) {
  return Call(admin_.get(), &v1::Admin::Stub::GetVersion,
              v1::GetVersionRequest(), reply);
}

AggctlResult AdminClient::Audit(const v1::ListAuditRequest& request,
                                v1::ListAuditReply* reply) {
  return Call(admin_.get(), &v1::Admin::Stub::ListAudit, request, reply);
}

AggctlResult AdminClient::Health(const std::string& service) {
  using grpc::health::v1::HealthCheckResponse;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  HealthCheckResponse reply;
  const AggctlResult result = Call(
      health_.get(), &grpc::health::v1::Health::Stub::Check, request, &reply);
  if (!result.ok() || reply.status() == HealthCheckResponse::SERVING) {
    return result;
  }
  return {kAggctlRefused,
          absl::StrCat(address_, " is not SERVING",
                       service.empty() ? "" : " " + Shown(service))};
}

}  // namespace agg
