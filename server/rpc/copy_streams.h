// The receiving ends of Replicate and Fetch: what a shard takes from its
// neighbours on the ring, and gives them (P15).
#ifndef AGG_SERVER_RPC_COPY_STREAMS_H_
#define AGG_SERVER_RPC_COPY_STREAMS_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <array>
#include <cstdint>

#include "absl/time/time.h"
#include "proto/control.pb.h"
#include "server/base/clock.h"
#include "server/round/neighbour_peer.h"
#include "server/rpc/executor.h"

namespace agg {

// Both may wait, for a replica's step or for a neighbour that reads slowly, so
// that they run on threads of their own: one for what is sent here, one for
// fetches of each of the two parts that a shard has. A fetch of which nobody
// takes a frame for kUnreadTime ends, since the next one waits behind it.
// Thread-safe.
class CopyStreams {
 public:
  static constexpr absl::Duration kUnreadTime = absl::Seconds(30);

  // `copies` takes and gives the bytes, and checks epoch and part; it and
  // `clock` outlive this, as this outlives the server. Null: calls are refused.
  CopyStreams(NeighbourPeer* copies, int32_t ordinal, const Clock* clock)
      : copies_(copies), ordinal_(ordinal), clock_(clock) {}

  grpc::ServerReadReactor<v1::CopyFrame>* Replicate();
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Fetch(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer& request);

 private:
  NeighbourPeer* const copies_;
  const int32_t ordinal_;  // of the shard
  const Clock* const clock_;
  Executor landing_;
  std::array<Executor, 2> fetches_;
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_COPY_STREAMS_H_
