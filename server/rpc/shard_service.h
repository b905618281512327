// The Shard service of proto/agg.proto: the data plane.
#ifndef AGG_SERVER_RPC_SHARD_SERVICE_H_
#define AGG_SERVER_RPC_SHARD_SERVICE_H_

#include "proto/agg.grpc.pb.h"
#include "server/rpc/open_streams.h"
#include "server/rpc/pull_frames.h"
#include "server/shard/shard_engine.h"

namespace agg {

// Both RPCs carry grpc::ByteBuffer: frames are taken apart and put together by
// proto/byte_buffer_frame.h, which copies a payload at most once.
class ShardService
    : public v1::Shard::WithRawCallbackMethod_Push<
          v1::Shard::WithRawCallbackMethod_Pull<v1::Shard::Service>> {
 public:
  // `engine` and `open` outlive the service, which outlives the gRPC server.
  ShardService(ShardEngine* engine, OpenStreams* open)
      : engine_(engine), open_(open) {}

 private:
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Push(
      grpc::CallbackServerContext*) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Pull(
      grpc::CallbackServerContext* context,
      const grpc::ByteBuffer* request) override;

  ShardEngine* const engine_;
  OpenStreams* const open_;
  PullFrameCache cache_;
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_SHARD_SERVICE_H_
