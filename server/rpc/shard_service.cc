// Both calls carry raw bytes; their reactors do the work (push_stream.h,
// pull_stream.h).
#include "server/rpc/shard_service.h"

#include "server/rpc/pull_stream.h"
#include "server/rpc/push_stream.h"

namespace agg {

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ShardService::Push(
    grpc::CallbackServerContext*) {
  return PushStream::Start(engine_, open_);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* ShardService::Pull(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return PullStream::Start(context, *request, engine_, &cache_);
}

}  // namespace agg
