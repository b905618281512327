// The receiving ends of Replicate and Fetch: what a shard takes from its
// neighbours on the ring, and gives them (P15).
#ifndef AGG_SERVER_RPC_COPY_STREAMS_H_
#define AGG_SERVER_RPC_COPY_STREAMS_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/control.pb.h"
#include "server/base/clock.h"
#include "server/round/neighbour_peer.h"
#include "server/rpc/long_poll.h"

namespace agg {

// Makes the CopyFrames of proto/control.proto, slices of a part on their way
// from one shard to another: a sender copies each slice once, into the bytes
// that gRPC sends. Puts frames together, one after another: each has slices of
// one array, up to kMaxFramePayloadBytes (or one slice), or a piece of the
// record. Thread-compatible.
class CopyFrameBuilder {
 public:
  // The first frame says whose bytes follow.
  explicit CopyFrameBuilder(const CopyHeader& header);

  // Whether the slice goes into the frame, too; an empty frame takes any.
  bool Fits(const CopySlice& slice) const;
  // Copies its bytes and computes their checksum. REQUIRES: Fits.
  void Add(const CopySlice& slice);
  // REQUIRES: the frame is empty.
  void SetRecord(absl::string_view piece);
  // No slice and no record; the header may still have to be sent.
  bool empty() const;
  // The frame; the next one is empty. `last`: of a round.
  grpc::ByteBuffer Take(bool last = false);

 private:
  v1::CopyFrame meta_;
  std::shared_ptr<std::string> payload_;  // null: empty
};

// The header of a stream's first frame. INVALID_ARGUMENT naming the field.
absl::Status ReadHeader(const v1::CopyFrame& frame, CopyHeader* header);

// Compares each slice's checksum and hands it to `sink`, whose error ends it.
// INVALID_ARGUMENT for a frame whose fields do not fit together, DATA_LOSS
// naming the slice that arrived damaged.
absl::Status ForEachSlice(
    const v1::CopyFrame& frame,
    const std::function<absl::Status(const CopySlice&)>& sink);

// A message out of a buffer. INVALID_ARGUMENT if it is none.
absl::Status ParseCopyFrame(grpc::ByteBuffer* buffer, v1::CopyFrame* frame);
absl::Status ParseFetchRequest(const grpc::ByteBuffer& buffer,
                               v1::FetchRequest* request);
grpc::ByteBuffer Serialize(const v1::FetchRequest& request);

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
