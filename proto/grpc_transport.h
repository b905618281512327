// gRPC's settings that both ends of a connection share.
#ifndef AGG_PROTO_GRPC_TRANSPORT_H_
#define AGG_PROTO_GRPC_TRANSPORT_H_

#include <grpc/grpc.h>

namespace agg {

// Largest HTTP/2 frame of those that a message is cut into
// (GRPC_ARG_HTTP2_MAX_FRAME_SIZE of the end that receives). gRPC writes no more
// at once; with its default of 16 KiB a message of 4 MiB is cut into 256
// pieces.
inline constexpr int kMaxHttp2FrameBytes = 1 << 20;

// Keeps gRPC's library-wide state until the process ends. Call before making a
// server or channel. Without it, destroying the last of them in a process shuts
// the library down, and gRPC 1.51 then often waits for its backup poller: 10
// seconds, seen as a server or client that hangs when it ends. Thread-safe; the
// first call counts.
inline void KeepGrpcInitialized() {
  static const bool initialized = [] {
    grpc_init();  // never matched by grpc_shutdown()
    return true;
  }();
  static_cast<void>(initialized);
}

}  // namespace agg

#endif  // AGG_PROTO_GRPC_TRANSPORT_H_
