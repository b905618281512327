// Data frames (PushFrame, PullFrame) as grpc::ByteBuffer: valid protobuf whose
// payload is neither copied when sent nor copied twice when received.
//
// Grammar (proto/README.md):  frame = tag(1) length meta [tag(15) length bytes]
#ifndef AGG_PROTO_BYTE_BUFFER_FRAME_H_
#define AGG_PROTO_BYTE_BUFFER_FRAME_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/agg.pb.h"

namespace agg {

// Receive limit of a message on every channel and server: a frame and room
// for its meta. Larger messages are refused by gRPC with RESOURCE_EXHAUSTED.
inline constexpr int kMaxMessageBytes = 8 << 20;

// A slice over memory that is not copied; `owner` is released on a gRPC
// thread once the bytes are sent (an owner must not free device memory there).
grpc::Slice AliasSlice(absl::string_view bytes,
                       std::shared_ptr<const void> owner);

// All of a frame before its payload's bytes, in one slice: frames that have the
// same meta and as many bytes may share it.
grpc::Slice MakeFrameHeader(const v1::FrameMeta& meta, int64_t payload_bytes);

// The frame that begins with `header`; as below.
grpc::ByteBuffer MakeFrame(const grpc::Slice& header,
                           absl::Span<const absl::string_view> payload,
                           std::shared_ptr<const void> owner);

// The frame of `meta` and the concatenated `payload` pieces, none copied.
// REQUIRES: `owner` keeps all pieces alive and unmodified.
grpc::ByteBuffer MakeFrame(const v1::FrameMeta& meta,
                           absl::Span<const absl::string_view> payload,
                           std::shared_ptr<const void> owner);

// Takes one received frame apart. Not thread-safe. Holds references on the
// buffer's slices, so it may outlive the ByteBuffer.
class FrameReader {
 public:
  FrameReader() = default;

  // INVALID_ARGUMENT saying what is malformed: no meta first, a length beyond
  // the message, bytes after the payload, a meta of over 1 MiB.
  absl::Status Init(const grpc::ByteBuffer& buffer);

  const v1::FrameMeta& meta() const { return meta_; }
  // Payload bytes not yet read.
  int64_t remaining_bytes() const { return remaining_; }

  // Copies the next `num_bytes` of the payload to `destination` and returns
  // their CRC32C. REQUIRES: num_bytes <= remaining_bytes().
  uint32_t Read(char* destination, int64_t num_bytes);

  // Skips them.
  void Skip(int64_t num_bytes);

 private:
  // The next piece of at most num_bytes, within one slice; advances.
  absl::string_view NextPiece(int64_t num_bytes);

  v1::FrameMeta meta_;
  std::vector<grpc::Slice> slices_;
  size_t slice_ = 0;   // current slice
  size_t offset_ = 0;  // within it
  int64_t remaining_ = 0;
};

}  // namespace agg

#endif  // AGG_PROTO_BYTE_BUFFER_FRAME_H_
