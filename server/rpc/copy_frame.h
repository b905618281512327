// CopyFrame of proto/agg.proto: slices of a part on their way from one shard to
// another. A sender copies each slice once, into the bytes that gRPC sends.
#ifndef AGG_SERVER_RPC_COPY_FRAME_H_
#define AGG_SERVER_RPC_COPY_FRAME_H_

#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/control.pb.h"
#include "server/round/neighbour_peer.h"

namespace agg {

// Puts frames together, one after another: each has slices of one array, up to
// kMaxFramePayloadBytes (or one slice), or a piece of the record.
// Thread-compatible.
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

}  // namespace agg

#endif  // AGG_SERVER_RPC_COPY_FRAME_H_
