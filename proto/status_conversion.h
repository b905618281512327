// absl::Status and grpc::Status: the only place where one becomes the other,
// for servers and clients. Clients say more about an error in
// worker_client/retry.h.
#ifndef AGG_PROTO_STATUS_CONVERSION_H_
#define AGG_PROTO_STATUS_CONVERSION_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace agg {

// Code and message; the codes of both have the same numbers. Longer messages
// than kMaxStatusMessageBytes are cut: they travel as a header.
grpc::Status ToGrpcStatus(const absl::Status& status);

// A code that absl does not know becomes UNKNOWN.
absl::Status FromGrpcStatus(const grpc::Status& status);

inline constexpr int kMaxStatusMessageBytes = 2048;

}  // namespace agg

#endif  // AGG_PROTO_STATUS_CONVERSION_H_
