// What both ends of a connection tell each other about its transport.
#ifndef AGG_PROTO_TRANSPORT_LIMITS_H_
#define AGG_PROTO_TRANSPORT_LIMITS_H_

namespace agg {

// Largest HTTP/2 frame of those that a message is cut into
// (GRPC_ARG_HTTP2_MAX_FRAME_SIZE of the end that receives). gRPC writes no more
// at once; with its default of 16 KiB a message of 4 MiB is cut into 256
// pieces.
inline constexpr int kMaxHttp2FrameBytes = 1 << 20;

}  // namespace agg

#endif  // AGG_PROTO_TRANSPORT_LIMITS_H_
