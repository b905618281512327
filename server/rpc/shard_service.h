// The Shard service of proto/agg.proto: the data plane.
#ifndef AGG_SERVER_RPC_SHARD_SERVICE_H_
#define AGG_SERVER_RPC_SHARD_SERVICE_H_

#include "proto/agg.grpc.pb.h"
#include "server/rpc/push_stream.h"
#include "server/rpc/stream_pulls.h"

namespace agg {

// Both RPCs carry grpc::ByteBuffer: frames are taken apart and put together by
// proto/byte_buffer_frame.h, which copies a payload at most once.
class ShardService
    : public v1::Shard::WithRawCallbackMethod_Push<
          v1::Shard::WithRawCallbackMethod_Pull<v1::Shard::Service>> {
 public:
  // `targets`, but for its cache, which is the service's own. What they point
  // to outlives the service, which outlives the gRPC server.
  explicit ShardService(const PushTargets& targets) : targets_(targets) {
    targets_.cache = &cache_;
  }

 private:
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Push(
      grpc::CallbackServerContext* context) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Pull(
      grpc::CallbackServerContext* context,
      const grpc::ByteBuffer* request) override;

  PullFrameCache cache_;
  PushTargets targets_;
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_SHARD_SERVICE_H_
