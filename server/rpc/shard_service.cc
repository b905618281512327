// Both calls carry raw bytes; their reactors do the work (push_stream.h,
// pull_stream.h).
#include "server/rpc/shard_service.h"

#include "absl/strings/match.h"
#include "server/base/local_buffers.h"
#include "server/rpc/pull_stream.h"

namespace agg {
namespace {

// The connection is there by now.
void WidenBuffersOf(const grpc::CallbackServerContext& context) {
  if (absl::StartsWith(context.peer(), "unix")) WidenLocalBuffers();
}

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ShardService::Push(
    grpc::CallbackServerContext* context) {
  WidenBuffersOf(*context);
  return PushStream::Start(context, &targets_);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* ShardService::Pull(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  WidenBuffersOf(*context);
  return PullStream::Start(context, *request, targets_.engine, &cache_);
}

}  // namespace agg
