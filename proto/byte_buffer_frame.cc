// Writes and reads a frame's few bytes of protobuf by hand, and leaves the
// payload where it is.
#include "proto/byte_buffer_frame.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/crc32c.h"

namespace agg {
namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

constexpr uint32_t kMetaTag = (1 << 3) | 2;
constexpr uint32_t kPayloadTag = (15 << 3) | 2;
constexpr uint32_t kMaxMetaBytes = 1 << 20;

// Protobuf's view of the buffer's slices.
class SliceStream : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit SliceStream(const std::vector<grpc::Slice>* slices)
      : slices_(slices) {}

  bool Next(const void** data, int* size) override {
    while (slice_ < slices_->size() && offset_ == (*slices_)[slice_].size()) {
      ++slice_;
      offset_ = 0;
    }
    if (slice_ == slices_->size()) return false;
    const grpc::Slice& slice = (*slices_)[slice_];
    *data = slice.begin() + offset_;
    *size = static_cast<int>(slice.size() - offset_);
    offset_ = slice.size();
    return true;
  }
  void BackUp(int count) override { offset_ -= count; }
  bool Skip(int count) override {
    const void* data;
    int size;
    while (count > 0) {
      if (!Next(&data, &size)) return false;
      if (size > count) {
        BackUp(size - count);
        return true;
      }
      count -= size;
    }
    return true;
  }
  int64_t ByteCount() const override {
    int64_t bytes = static_cast<int64_t>(offset_);
    for (size_t i = 0; i < slice_; ++i) bytes += (*slices_)[i].size();
    return bytes;
  }

  size_t slice() const { return slice_; }
  size_t offset() const { return offset_; }

 private:
  const std::vector<grpc::Slice>* slices_;
  size_t slice_ = 0;
  size_t offset_ = 0;
};

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("malformed frame: ", what,
                   "; allowed: field 1 (meta), then field 15 (payload)"));
}

absl::Status ReadMeta(CodedInputStream* in, v1::FrameMeta* meta) {
  if (in->ReadTag() != kMetaTag)
    return Malformed("it does not start with meta");
  uint32_t length;
  if (!in->ReadVarint32(&length)) return Malformed("the length of meta is cut");
  if (length > kMaxMetaBytes) {
    return Malformed(
        absl::StrCat("meta has ", length, " bytes, over ", kMaxMetaBytes));
  }
  const auto limit = in->PushLimit(static_cast<int>(length));
  if (!meta->ParseFromCodedStream(in) || !in->ConsumedEntireMessage() ||
      in->BytesUntilLimit() != 0) {
    return Malformed("meta does not parse");
  }
  in->PopLimit(limit);
  return absl::OkStatus();
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

absl::Status FrameReader::Init(const grpc::ByteBuffer& buffer) {
  slices_.clear();
  meta_.Clear();
  remaining_ = 0;
  if (!buffer.Dump(&slices_).ok()) {
    return absl::InvalidArgumentError("malformed frame: unreadable buffer");
  }
  SliceStream stream(&slices_);
  const int64_t total = static_cast<int64_t>(buffer.Length());
  {
    CodedInputStream in(&stream);
    absl::Status status = ReadMeta(&in, &meta_);
    if (!status.ok()) return status;
    uint32_t length = 0;
    if (in.CurrentPosition() < total) {
      const uint32_t tag = in.ReadTag();  // 0 if it is cut, or a zero byte
      if (tag != kPayloadTag) {
        return Malformed(absl::StrCat("field ", tag >> 3, " follows meta"));
      }
      if (!in.ReadVarint32(&length)) {
        return Malformed("the length of payload is cut");
      }
    }
    const int64_t left = total - in.CurrentPosition();
    if (left != static_cast<int64_t>(length)) {
      return Malformed(absl::StrCat("payload says ", length, " bytes, ", left,
                                    " bytes follow"));
    }
    remaining_ = length;
  }  // gives back to `stream` what it has read ahead
  slice_ = stream.slice();
  offset_ = stream.offset();
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
  // The checksum of a piece is taken while its bytes are in the cache.
  uint32_t crc = kCrc32cInit;
  while (num_bytes > 0) {
    const absl::string_view piece = NextPiece(num_bytes);
    std::memcpy(destination, piece.data(), piece.size());
    crc = ExtendCrc32c(crc, absl::string_view(destination, piece.size()));
    destination += piece.size();
    num_bytes -= static_cast<int64_t>(piece.size());
  }
  return FinishCrc32c(crc);
}

void FrameReader::Skip(int64_t num_bytes) {
  while (num_bytes > 0) {
    num_bytes -= static_cast<int64_t>(NextPiece(num_bytes).size());
  }
}

}  // namespace agg
