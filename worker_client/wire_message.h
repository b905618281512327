// Small protobuf messages on streams of grpc::ByteBuffer. The streams carry
// bytes, so that frames need no copy; their other messages are made here.
#ifndef AGG_WORKER_CLIENT_WIRE_MESSAGE_H_
#define AGG_WORKER_CLIENT_WIRE_MESSAGE_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

namespace agg {

// False if the bytes are not such a message.
bool ParseMessage(const grpc::ByteBuffer& buffer,
                  google::protobuf::MessageLite* message);

grpc::ByteBuffer SerializeMessage(const google::protobuf::MessageLite& message);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_WIRE_MESSAGE_H_
