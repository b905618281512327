// What a Pull asks for, as plain values.
#ifndef AGG_SERVER_RPC_PULL_QUERY_H_
#define AGG_SERVER_RPC_PULL_QUERY_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/dtype.h"
#include "proto/agg.pb.h"

namespace agg {

// PullRequest of proto/agg.proto. Whether the shard keeps `dtype` is not
// checked: that depends on the version.
struct PullQuery {
  uint64_t epoch = 0;  // 0: any
  uint64_t version = 0;
  bool latest = false;  // the newest version, whatever `version` says
  DType dtype = DType::kF32;
  std::vector<uint32_t> first_slices;  // as they came; at most kMaxFirstSlices
  // The reader maps the version, if it can (P40). Nothing to a Push stream.
  bool in_place = false;
  // True, with in_place, if the reader maps a device's memory, too (P48).
  bool on_device = false;
};

// More of them are INVALID_ARGUMENT (P42).
inline constexpr int kMaxFirstSlices = 200;

// The Pull RPC carries raw bytes, so the request is parsed here.
// INVALID_ARGUMENT for bytes that are not a PullRequest and for a dtype that
// proto/agg.proto does not have.
absl::StatusOr<PullQuery> ParsePullQuery(const grpc::ByteBuffer& request);

// INVALID_ARGUMENT for a dtype as above.
absl::StatusOr<PullQuery> QueryOf(const v1::PullRequest& request);

// INVALID_ARGUMENT: the shard has no parameters in `dtype` (its number in
// proto/agg.proto).
absl::Status UnknownPullDType(int dtype);

}  // namespace agg

#endif  // AGG_SERVER_RPC_PULL_QUERY_H_
