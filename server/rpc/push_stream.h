// The reactor of one worker's Push stream: frames in, acknowledgements out.
#ifndef AGG_SERVER_RPC_PUSH_STREAM_H_
#define AGG_SERVER_RPC_PUSH_STREAM_H_

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"
#include "server/rpc/bidi_stream.h"
#include "server/rpc/open_streams.h"
#include "server/shard/shard_engine.h"

namespace agg {

// One read is in flight at a time: OnReadDone lands the frame before it starts
// the next read, so that a client can be at most one frame (and the transport's
// window) ahead. Acknowledgements go out beside the reads (bidi_stream.h). The
// first error ends the stream; so does the client's WritesDone, with OK.
class PushStream : public BidiStream<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // `engine` and `open` outlive the gRPC server.
  static PushStream* Start(ShardEngine* engine, OpenStreams* open);

 private:
  PushStream(ShardEngine* engine, OpenStreams* open)
      : BidiStream(open), engine_(engine) {}

  void OnReadDone(bool ok) override;
  // Lands frame_, and sends the acknowledgement if it completes the push.
  absl::Status LandFrame();

  ShardEngine* const engine_;
  grpc::ByteBuffer frame_;  // being read, or landed
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_PUSH_STREAM_H_
