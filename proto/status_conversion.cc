// Both kinds of status number their codes alike, so only codes that are not
// known and long messages need care.
#include "proto/status_conversion.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace agg {

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  absl::string_view message = status.message();
  std::string cut;
  if (message.size() > kMaxStatusMessageBytes) {
    cut = absl::StrCat(message.substr(0, kMaxStatusMessageBytes - 3), "...");
    message = cut;
  }
  // absl::StatusCode has gRPC's numbers (absl/status/status.h).
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(message));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const int code = static_cast<int>(status.error_code());
  const bool known = code > 0 && code <= 16;
  return absl::Status(
      known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
      status.error_message());
}

}  // namespace agg
