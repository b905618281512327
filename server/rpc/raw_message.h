// Messages between gRPC's bytes and protobuf, for calls whose messages are
// large once they are parsed: what they take is known before it is taken.
#ifndef AGG_SERVER_RPC_RAW_MESSAGE_H_
#define AGG_SERVER_RPC_RAW_MESSAGE_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string>

#include "absl/status/status.h"

namespace agg {

// Parses the bytes of a request and gives them back, though gRPC keeps the
// buffer until the call has ended. INVALID_ARGUMENT if they are malformed.
absl::Status ParseRaw(const grpc::ByteBuffer* request,
                      google::protobuf::MessageLite* message);

// The message's bytes; the message itself is not needed any more.
grpc::ByteBuffer RawMessage(const google::protobuf::MessageLite& message);

// The message's bytes with one field more, which is `field` of type bytes or
// message, and which all buffers made of `bytes` share.
grpc::ByteBuffer RawMessageWith(const google::protobuf::MessageLite& message,
                                int field,
                                std::shared_ptr<const std::string> bytes);

// What gRPC has parsed, taken out of its hands, which would keep it until the
// call has ended: a call that waits keeps plain values alone, and not what else
// its message had. To be called once, by the handler.
template <typename Message>
Message TakeMessage(const Message* request) {
  Message taken;
  taken.Swap(const_cast<Message*>(request));
  return taken;
}

}  // namespace agg

#endif  // AGG_SERVER_RPC_RAW_MESSAGE_H_
