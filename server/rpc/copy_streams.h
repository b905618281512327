// The receiving ends of Replicate and Fetch: what a shard takes from its
// neighbours on the ring, and gives them (P15).
#ifndef AGG_SERVER_RPC_COPY_STREAMS_H_
#define AGG_SERVER_RPC_COPY_STREAMS_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <array>
#include <cstdint>

#include "proto/control.pb.h"
#include "server/round/neighbour_peer.h"
#include "server/rpc/executor.h"

namespace agg {

// Both may wait, for a replica's step or for a neighbour that reads slowly, so
// that they run on threads of their own: one for what is sent here, one for
// fetches of each of the two parts that a shard has. Thread-safe.
class CopyStreams {
 public:
  // `copies` takes and gives the bytes, and checks epoch and part; it outlives
  // this, as this outlives the server. Null: calls are refused.
  CopyStreams(NeighbourPeer* copies, int32_t ordinal)
      : copies_(copies), ordinal_(ordinal) {}

  grpc::ServerReadReactor<v1::CopyFrame>* Replicate();
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Fetch(
      const grpc::ByteBuffer& request);

 private:
  NeighbourPeer* const copies_;
  const int32_t ordinal_;  // of the shard
  Executor landing_;
  std::array<Executor, 2> fetches_;
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_COPY_STREAMS_H_
