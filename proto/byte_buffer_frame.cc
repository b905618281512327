// Writes and reads a frame's few bytes of protobuf by hand, and leaves the
// payload where it is.
#include "proto/byte_buffer_frame.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/crc32c.h"
#include "proto/slice_stream.h"
#include "proto/stream_copy.h"

namespace agg {
namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

using google::protobuf::internal::WireFormatLite;

constexpr uint32_t kMetaTag = (1 << 3) | 2;
constexpr uint32_t kCommitTag = (2 << 3) | 2;
constexpr uint32_t kPullTag = (3 << 3) | 2;
constexpr uint32_t kPayloadTag = (15 << 3) | 2;
constexpr uint32_t kMaxMetaBytes = 1 << 20;
constexpr uint32_t kMaxRequestBytes = 64 << 10;  // of a commit or a pull

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(
      "malformed frame: ", what,
      "; allowed: field 1 (meta), then 2 (commit), 3 (pull) and 15 (payload), "
      "once each"));
}

// The message behind a tag.
absl::Status ReadPart(CodedInputStream* in, absl::string_view name,
                      uint32_t max_bytes, google::protobuf::MessageLite* part) {
  uint32_t length;
  if (!in->ReadVarint32(&length)) {
    return Malformed(absl::StrCat("the length of ", name, " is cut"));
  }
  if (length > max_bytes) {
    return Malformed(
        absl::StrCat(name, " has ", length, " bytes, over ", max_bytes));
  }
  const auto limit = in->PushLimit(static_cast<int>(length));
  if (!part->ParseFromCodedStream(in) || !in->ConsumedEntireMessage() ||
      in->BytesUntilLimit() != 0) {
    return Malformed(absl::StrCat(name, " does not parse"));
  }
  in->PopLimit(limit);
  return absl::OkStatus();
}

// Behind the payload's tag. *length is what it says, which is all that is left.
absl::Status ReadPayloadLength(CodedInputStream* in, int64_t total,
                               int64_t* payload) {
  uint32_t length;
  if (!in->ReadVarint32(&length)) {
    return Malformed("the length of payload is cut");
  }
  const int64_t left = total - in->CurrentPosition();
  if (left != static_cast<int64_t>(length)) {
    return Malformed(absl::StrCat("payload says ", length, " bytes, ", left,
                                  " bytes follow"));
  }
  *payload = left;
  return absl::OkStatus();
}

// `head` is serialized before the payload: its fields have lower numbers.
grpc::Slice HeaderOf(const google::protobuf::MessageLite& head,
                     int64_t payload_bytes) {
  const size_t head_bytes = head.ByteSizeLong();
  std::string header;
  header.resize(head_bytes + 6);  // a tag, a length of up to 5 bytes
  auto* start = reinterpret_cast<uint8_t*>(&header[0]);
  uint8_t* at = head.SerializeWithCachedSizesToArray(start);
  if (payload_bytes > 0) {
    at = CodedOutputStream::WriteTagToArray(kPayloadTag, at);
    at = CodedOutputStream::WriteVarint32ToArray(
        static_cast<uint32_t>(payload_bytes), at);
  }
  return grpc::Slice(start, static_cast<size_t>(at - start));
}

}  // namespace

grpc::Slice AliasSlice(absl::string_view bytes,
                       std::shared_ptr<const void> owner) {
  auto* held = new std::shared_ptr<const void>(std::move(owner));
  return grpc::Slice(
      const_cast<char*>(bytes.data()), bytes.size(),
      [](void* held) {
        delete static_cast<std::shared_ptr<const void>*>(held);
      },
      held);
}

grpc::Slice MakeFrameHeader(const v1::FrameMeta& meta, int64_t payload_bytes) {
  const size_t meta_bytes = meta.ByteSizeLong();
  std::string header;
  header.resize(meta_bytes + 12);  // two tags, two lengths of up to 5 bytes
  auto* start = reinterpret_cast<uint8_t*>(&header[0]);
  uint8_t* at = CodedOutputStream::WriteTagToArray(kMetaTag, start);
  at = CodedOutputStream::WriteVarint32ToArray(
      static_cast<uint32_t>(meta_bytes), at);
  at = meta.SerializeWithCachedSizesToArray(at);
  if (payload_bytes > 0) {
    at = CodedOutputStream::WriteTagToArray(kPayloadTag, at);
    at = CodedOutputStream::WriteVarint32ToArray(
        static_cast<uint32_t>(payload_bytes), at);
  }
  return grpc::Slice(start, static_cast<size_t>(at - start));
}

grpc::ByteBuffer MakeFrame(const grpc::Slice& header,
                           absl::Span<const absl::string_view> payload,
                           std::shared_ptr<const void> owner) {
  std::vector<grpc::Slice> slices;
  slices.reserve(payload.size() + 1);
  slices.push_back(header);
  for (absl::string_view piece : payload) {
    if (!piece.empty()) slices.push_back(AliasSlice(piece, owner));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

grpc::ByteBuffer MakeFrame(const v1::FrameMeta& meta,
                           absl::Span<const absl::string_view> payload,
                           std::shared_ptr<const void> owner) {
  int64_t payload_bytes = 0;
  for (absl::string_view piece : payload) {
    payload_bytes += static_cast<int64_t>(piece.size());
  }
  return MakeFrame(MakeFrameHeader(meta, payload_bytes), payload,
                   std::move(owner));
}

grpc::Slice MakeFrameHeader(const v1::PushFrame& head, int64_t payload_bytes) {
  return HeaderOf(head, payload_bytes);
}

grpc::Slice MakeFrameHeader(const v1::PushAck& head, int64_t payload_bytes) {
  return HeaderOf(head, payload_bytes);
}

absl::Status FrameReader::Take(const grpc::ByteBuffer& buffer) {
  slices_.clear();
  meta_.Clear();
  commit_.reset();
  pull_.reset();
  remaining_ = 0;
  if (buffer.Dump(&slices_).ok()) return absl::OkStatus();
  return absl::InvalidArgumentError("malformed frame: unreadable buffer");
}

absl::Status FrameReader::ReadHead(CodedInputStream* in, int64_t total) {
  if (in->ReadTag() != kMetaTag) {
    return Malformed("it does not start with meta");
  }
  absl::Status status = ReadPart(in, "meta", kMaxMetaBytes, &meta_);
  absl::string_view before = "meta";
  while (status.ok() && in->CurrentPosition() < total) {
    const uint32_t tag = in->ReadTag();  // 0 if it is cut, or a zero byte
    if (tag == kPayloadTag) return ReadPayloadLength(in, total, &remaining_);
    if (tag == kCommitTag && before == "meta") {
      before = "commit";
      status = ReadPart(in, before, kMaxRequestBytes, &commit_.emplace());
    } else if (tag == kPullTag && before != "pull") {
      before = "pull";
      status = ReadPart(in, before, kMaxRequestBytes, &pull_.emplace());
    } else {
      status = Malformed(absl::StrCat("field ", tag >> 3, " follows ", before));
    }
  }
  return status;
}

absl::Status FrameReader::Init(const grpc::ByteBuffer& buffer) {
  absl::Status status = Take(buffer);
  if (!status.ok()) return status;
  SliceStream stream(&slices_);
  {
    CodedInputStream in(&stream);
    status = ReadHead(&in, static_cast<int64_t>(buffer.Length()));
    if (!status.ok()) return status;
  }  // gives back to `stream` what it has read ahead
  slice_ = stream.slice();
  offset_ = stream.offset();
  return absl::OkStatus();
}

absl::Status FrameReader::InitAck(const grpc::ByteBuffer& buffer,
                                  v1::PushAck* ack) {
  absl::Status status = Take(buffer);
  if (!status.ok()) return status;
  const int64_t total = static_cast<int64_t>(buffer.Length());
  int head_bytes = 0;
  SliceStream stream(&slices_);
  {
    CodedInputStream in(&stream);
    while (in.CurrentPosition() < total) {
      const uint32_t tag = in.ReadTag();
      if (tag == kPayloadTag) {
        status = ReadPayloadLength(&in, total, &remaining_);
        if (!status.ok()) return status;
        break;
      }
      if (!WireFormatLite::SkipField(&in, tag)) {
        return Malformed("an acknowledgement does not parse");
      }
      head_bytes = in.CurrentPosition();
    }
  }
  slice_ = stream.slice();
  offset_ = stream.offset();
  SliceStream again(&slices_);
  CodedInputStream in(&again);
  in.PushLimit(head_bytes);
  if (!ack->ParseFromCodedStream(&in) || !in.ConsumedEntireMessage()) {
    return Malformed("an acknowledgement does not parse");
  }
  meta_ = ack->meta();
  return absl::OkStatus();
}

absl::string_view FrameReader::NextPiece(int64_t num_bytes) {
  while (offset_ == slices_[slice_].size()) {
    ++slice_;
    offset_ = 0;
  }
  const grpc::Slice& slice = slices_[slice_];
  const size_t size =
      std::min(slice.size() - offset_, static_cast<size_t>(num_bytes));
  absl::string_view piece(
      reinterpret_cast<const char*>(slice.begin()) + offset_, size);
  offset_ += size;
  remaining_ -= static_cast<int64_t>(size);
  return piece;
}

uint32_t FrameReader::Read(char* destination, int64_t num_bytes) {
  assert(num_bytes <= remaining_);
  return FinishCrc32c(ReadOn(destination, num_bytes, kCrc32cInit));
}

uint32_t FrameReader::ReadOn(char* destination, int64_t num_bytes,
                             uint32_t crc) {
  // What the checksum has read is in the L1 cache when it is copied.
  constexpr int64_t kChunk = 16 << 10;
  const bool streams = num_bytes >= static_cast<int64_t>(kStreamBytes);
  while (num_bytes > 0) {
    const absl::string_view piece = NextPiece(std::min(num_bytes, kChunk));
    crc = ExtendCrc32c(crc, piece);
    if (streams) {
      StreamCopy(destination, piece.data(), piece.size());
    } else {
      std::memcpy(destination, piece.data(), piece.size());
    }
    destination += piece.size();
    num_bytes -= static_cast<int64_t>(piece.size());
  }
  return crc;
}

void FrameReader::Skip(int64_t num_bytes) {
  while (num_bytes > 0) {
    num_bytes -= static_cast<int64_t>(NextPiece(num_bytes).size());
  }
}

}  // namespace agg
