// Parses the request itself: Pull's reactor gets bytes, since its frames
// must not be copied.
#include "server/rpc/pull_query.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/agg.pb.h"

namespace agg {
namespace {

// A PullRequest has some 30 bytes. A longer message is refused before its
// slices are joined, which would cost a copy of it.
constexpr size_t kMaxRequestBytes = 1024;

bool ParseRequest(const grpc::ByteBuffer& buffer, v1::PullRequest* request) {
  std::vector<grpc::Slice> slices;
  if (buffer.Length() > kMaxRequestBytes || !buffer.Dump(&slices).ok()) {
    return false;
  }
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return request->ParseFromString(bytes);
}

}  // namespace

absl::StatusOr<PullQuery> ParsePullQuery(const grpc::ByteBuffer& buffer) {
  v1::PullRequest request;
  if (!ParseRequest(buffer, &request)) {
    return absl::InvalidArgumentError("malformed PullRequest");
  }
  if (request.dtype() < v1::F32 || request.dtype() > v1::F16) {
    return UnknownPullDType(request.dtype());
  }
  return PullQuery{request.epoch(), request.version(), request.latest(),
                   static_cast<DType>(request.dtype())};
}

absl::Status UnknownPullDType(int dtype) {
  return absl::InvalidArgumentError(absl::StrCat(
      "dtype is ", dtype, "; allowed: F32 (1) and the job's pull_dtype"));
}

}  // namespace agg
