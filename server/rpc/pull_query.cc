// Parses the request itself: Pull's reactor gets bytes, since its frames
// must not be copied.
#include "server/rpc/pull_query.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace agg {
namespace {

// A PullRequest has some 30 bytes, and up to 5 for a first slice. A longer
// message is refused before its slices are joined, which would cost a copy of
// it.
constexpr size_t kMaxRequestBytes = 64 + 6 * kMaxFirstSlices;

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
  return QueryOf(request);
}

absl::StatusOr<PullQuery> QueryOf(const v1::PullRequest& request) {
  if (request.dtype() < v1::F32 || request.dtype() > v1::F16) {
    return UnknownPullDType(request.dtype());
  }
  if (request.first_slices_size() > kMaxFirstSlices) {
    return absl::InvalidArgumentError(
        absl::StrCat("first_slices has ", request.first_slices_size(),
                     " slices; allowed: at most ", kMaxFirstSlices));
  }
  if (request.on_device() && !request.in_place()) {
    return absl::InvalidArgumentError(
        "on_device is set without in_place; allowed: with it");
  }
  PullQuery query;
  query.epoch = request.epoch();
  query.version = request.version();
  query.latest = request.latest();
  query.dtype = static_cast<DType>(request.dtype());
  query.first_slices.assign(request.first_slices().begin(),
                            request.first_slices().end());
  query.in_place = request.in_place();
  query.on_device = request.on_device();
  return query;
}

absl::Status UnknownPullDType(int dtype) {
  return absl::InvalidArgumentError(absl::StrCat(
      "dtype is ", dtype, "; allowed: F32 (1) and the job's pull_dtype"));
}

}  // namespace agg
