// The table of advice by status code, and the list of errors that a lost
// connection looks like.
#include "worker_client/rpc_status.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/channel_credentials.h"
#include "proto/grpc_channel.h"
#include "proto/status_conversion.h"
#include "server/base/limit_error.h"
#include "server/base/utf8.h"
#include "server/tls/tls_diagnosis.h"

namespace agg {
namespace {

absl::string_view Advice(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnavailable:
      return "check that its agg_server runs and can be reached";
    case absl::StatusCode::kUnimplemented:
      return "check that an agg_server of the same version listens there";
    case absl::StatusCode::kUnauthenticated:
      return "set token_file, or AGG_TOKEN_FILE, to a token of this job";
    case absl::StatusCode::kNotFound:
      return "Connect again to go on";
    case absl::StatusCode::kDeadlineExceeded:
      return "see GetStatus or the server's log for who is waited for";
    case absl::StatusCode::kDataLoss:
      return "bytes were damaged on the way; push or pull again";
    default:
      return "";
  }
}

}  // namespace

std::string ToString(const ShardName& shard) {
  return absl::StrCat("shard ", shard.ordinal, " (", shard.address, ")");
}

absl::Status FromGrpc(const grpc::Status& status, const ShardName& shard,
                      absl::string_view call) {
  if (status.ok()) return absl::OkStatus();
  const absl::StatusCode code = FromGrpcStatus(status).code();
  const std::string where = absl::StrCat(ToString(shard), ": ", call, ": ");
  const std::string why =
      code != absl::StatusCode::kUnavailable
          ? ""
          : WhyNotConnected(
                status.error_message(),
                {shard.address, ServerNameOf(shard.tls, shard.address),
                 shard.tls});
  if (!why.empty()) {
    return absl::Status(code, absl::StrCat(where, why, " (",
                                           Shown(status.error_message()), ")"));
  }
  // It may quote what other peers have sent.
  std::string message = absl::StrCat(where, Shown(status.error_message()),
                                     ProxyRemark(status.error_message()));
  const absl::string_view advice = IsStarting(status) ? "" : Advice(code);
  if (!advice.empty()) absl::StrAppend(&message, "; ", advice);
  return absl::Status(code, message);
}

bool IsConnectionLoss(const grpc::Status& status) {
  // A server that shuts down cancels its calls, and HTTP/2 resets that the far
  // end's death may cause come as UNKNOWN and INTERNAL.
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::CANCELLED ||
         (status.error_code() == grpc::StatusCode::UNKNOWN &&
          absl::StrContains(status.error_message(), "Stream removed")) ||
         (status.error_code() == grpc::StatusCode::INTERNAL &&
          absl::StrContains(status.error_message(), "RST_STREAM"));
}

bool IsStarting(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE &&
         absl::StartsWith(status.error_message(), "waiting for all shards");
}

bool IsLimit(const grpc::Status& status) {
  return IsLimitError(FromGrpcStatus(status));
}

}  // namespace agg
