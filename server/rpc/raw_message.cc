// Slices that share a text hold it by a pointer of their own.
#include "server/rpc/raw_message.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <cstdint>
#include <utility>

namespace agg {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;

using Held = std::shared_ptr<const std::string>;

grpc::Slice SliceOf(Held bytes) {
  auto* const held = new Held(std::move(bytes));
  return grpc::Slice(
      const_cast<char*>((*held)->data()), (*held)->size(),
      [](void* data) { delete static_cast<Held*>(data); }, held);
}

}  // namespace

absl::Status ParseRaw(const grpc::ByteBuffer* request,
                      google::protobuf::MessageLite* message) {
  // gRPC's own object, which it hands out as const.
  auto* const buffer = const_cast<grpc::ByteBuffer*>(request);
  bool parsed = true;
  if (buffer->Valid() && buffer->Length() > 0) {
    grpc::ProtoBufferReader reader(buffer);
    parsed = reader.status().ok() && message->ParseFromZeroCopyStream(&reader);
  }
  buffer->Clear();
  if (parsed) return absl::OkStatus();
  return absl::InvalidArgumentError("the request is malformed");
}

grpc::ByteBuffer RawMessage(const google::protobuf::MessageLite& message) {
  grpc::Slice slice =
      SliceOf(std::make_shared<const std::string>(message.SerializeAsString()));
  return grpc::ByteBuffer(&slice, 1);
}

grpc::ByteBuffer RawMessageWith(const google::protobuf::MessageLite& message,
                                int field,
                                std::shared_ptr<const std::string> bytes) {
  std::string head = message.SerializeAsString();
  uint8_t tag[16];
  uint8_t* end = CodedOutputStream::WriteTagToArray(
      WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED),
      tag);
  end = CodedOutputStream::WriteVarint32ToArray(
      static_cast<uint32_t>(bytes->size()), end);
  head.append(reinterpret_cast<const char*>(tag),
              static_cast<size_t>(end - tag));
  const grpc::Slice slices[] = {
      SliceOf(std::make_shared<const std::string>(std::move(head))),
      SliceOf(std::move(bytes))};
  return grpc::ByteBuffer(slices, 2);
}

}  // namespace agg
