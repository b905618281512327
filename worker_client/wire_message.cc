// A message of several slices is joined first: protobuf's parser takes one
// piece.
#include "worker_client/wire_message.h"

#include <grpcpp/support/slice.h>

namespace agg {

bool ParseMessage(const grpc::ByteBuffer& buffer,
                  google::protobuf::MessageLite* message) {
  grpc::Slice bytes;
  return buffer.DumpToSingleSlice(&bytes).ok() &&
         message->ParseFromArray(bytes.begin(), static_cast<int>(bytes.size()));
}

grpc::ByteBuffer SerializeMessage(
    const google::protobuf::MessageLite& message) {
  const grpc::Slice bytes(message.SerializeAsString());
  return grpc::ByteBuffer(&bytes, 1);
}

}  // namespace agg
