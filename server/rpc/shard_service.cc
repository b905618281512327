// Both calls carry raw bytes; their reactors do the work (push_stream.h,
// pull_stream.h).
#include "server/rpc/shard_service.h"

#include "server/rpc/pull_stream.h"

namespace agg {

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ShardService::Push(
    grpc::CallbackServerContext* context) {
  return PushStream::Start(context, &targets_);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* ShardService::Pull(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return PullStream::Start(context, *request, targets_.engine, &cache_);
}

}  // namespace agg
