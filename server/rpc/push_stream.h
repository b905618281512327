// One worker's Push stream: frames in, acknowledgements out.
#ifndef AGG_SERVER_RPC_PUSH_STREAM_H_
#define AGG_SERVER_RPC_PUSH_STREAM_H_

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/agg.pb.h"
#include "server/ingest/frame.h"
#include "server/rpc/bidi_stream.h"
#include "server/rpc/open_streams.h"
#include "server/shard/shard_engine.h"

namespace agg {

// The header as plain values. INVALID_ARGUMENT for a kind or dtype that is
// none of proto/agg.proto; everything else is the engine's to check.
absl::StatusOr<FrameHeader> FrameHeaderOf(const v1::FrameMeta& meta,
                                          int64_t payload_bytes);

// Lands each frame before it reads the next one, so that a client can be at
// most a frame (and the transport's window) ahead. The first error ends it.
class PushStream : public BidiStream<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // `engine` and `open` outlive the gRPC server.
  static PushStream* Start(ShardEngine* engine, OpenStreams* open);

 private:
  PushStream(ShardEngine* engine, OpenStreams* open)
      : BidiStream(open), engine_(engine) {}

  void OnReadDone(bool ok) override;
  absl::Status HandleFrame();

  ShardEngine* const engine_;
  grpc::ByteBuffer frame_;
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_PUSH_STREAM_H_
