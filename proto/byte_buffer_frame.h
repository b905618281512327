// Data frames (PushFrame, PullFrame, PushAcks with a version) as
// grpc::ByteBuffer: valid protobuf whose payload is neither copied when sent
// nor copied twice when received. Grammar: proto/README.md, "Data frames".
#ifndef AGG_PROTO_BYTE_BUFFER_FRAME_H_
#define AGG_PROTO_BYTE_BUFFER_FRAME_H_

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <memory>
#include <optional>
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

// Makes a slice over memory that is not copied; `owner` is released on a gRPC
// thread once the bytes are sent (an owner must not free device memory there).
grpc::Slice AliasSlice(absl::string_view bytes,
                       std::shared_ptr<const void> owner);

// Makes all of a frame before its payload's bytes, in one slice: frames that
// have the same meta and as many bytes may share it.
grpc::Slice MakeFrameHeader(const v1::FrameMeta& meta, int64_t payload_bytes);
// Makes that from `head`, which is the frame without its payload: a PushFrame
// with a commit or a pull, or a PushAck (P41).
grpc::Slice MakeFrameHeader(const v1::PushFrame& head, int64_t payload_bytes);
grpc::Slice MakeFrameHeader(const v1::PushAck& head, int64_t payload_bytes);

// Makes the frame that begins with `header`; payload and owner as below.
grpc::ByteBuffer MakeFrame(const grpc::Slice& header,
                           absl::Span<const absl::string_view> payload,
                           std::shared_ptr<const void> owner);

// Makes the frame of `meta` and the concatenated `payload` pieces, none copied.
// REQUIRES: `owner` keeps all pieces alive and unmodified.
grpc::ByteBuffer MakeFrame(const v1::FrameMeta& meta,
                           absl::Span<const absl::string_view> payload,
                           std::shared_ptr<const void> owner);

// Takes one received frame apart. Not thread-safe. Holds references on the
// buffer's slices, so it may outlive the ByteBuffer.
class FrameReader {
 public:
  FrameReader() = default;

  // Begins to read a PushFrame or a PullFrame. INVALID_ARGUMENT saying what is
  // malformed: no meta first, fields that are unknown or not in their order, a
  // length beyond the message, bytes after the payload, a meta of over 1 MiB, a
  // commit or a pull of over 64 KiB.
  absl::Status Init(const grpc::ByteBuffer& buffer);
  // Begins to read a PushAck, whose fields but the payload become *ack; meta()
  // is its meta. INVALID_ARGUMENT as above; fields may be unknown.
  absl::Status InitAck(const grpc::ByteBuffer& buffer, v1::PushAck* ack);

  const v1::FrameMeta& meta() const { return meta_; }
  // Requests that came with a PushFrame (P41); nothing: it has none.
  const std::optional<v1::CommitRequest>& commit() const { return commit_; }
  const std::optional<v1::PullRequest>& pull() const { return pull_; }
  // Payload bytes not yet read.
  int64_t remaining_bytes() const { return remaining_; }

  // Copies the next `num_bytes` of the payload to `destination` and returns
  // their CRC32C. REQUIRES: num_bytes <= remaining_bytes().
  uint32_t Read(char* destination, int64_t num_bytes);
  // Reads as Read does, but goes on with a running checksum (crc32c.h), and
  // returns it.
  uint32_t ReadOn(char* destination, int64_t num_bytes, uint32_t crc);

  // Skips the next `num_bytes` of the payload.
  void Skip(int64_t num_bytes);

 private:
  // Returns the next piece of at most num_bytes, within one slice; advances.
  absl::string_view NextPiece(int64_t num_bytes);
  // Takes the buffer's slices, and forgets the last frame. INVALID_ARGUMENT:
  // the buffer cannot be read.
  absl::Status Take(const grpc::ByteBuffer& buffer);
  // Reads everything up to the payload's bytes.
  absl::Status ReadHead(google::protobuf::io::CodedInputStream* in,
                        int64_t total);

  v1::FrameMeta meta_;
  std::optional<v1::CommitRequest> commit_;
  std::optional<v1::PullRequest> pull_;
  std::vector<grpc::Slice> slices_;
  size_t slice_ = 0;   // current slice
  size_t offset_ = 0;  // within it
  int64_t remaining_ = 0;
};

}  // namespace agg

#endif  // AGG_PROTO_BYTE_BUFFER_FRAME_H_
