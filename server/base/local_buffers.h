// How much a Unix socket of this project takes before its writer has to wait.
// Apart from the sockets' names, since gRPC opens the sockets.
#ifndef AGG_SERVER_BASE_LOCAL_BUFFERS_H_
#define AGG_SERVER_BASE_LOCAL_BUFFERS_H_

namespace agg {

// What a socket is given, or less where net.core.wmem_max is lower.
inline constexpr int kLocalBufferBytes = 1 << 20;

// Gives each connected abstract Unix socket of this process whose name begins
// with "agg-", its own or its peer's, a send buffer of kLocalBufferBytes,
// unless it has one. gRPC has no option for that, so this looks at all of the
// process's descriptors: some microseconds, to be called when a stream begins.
// Does nothing where /proc cannot be read. Thread-safe.
void WidenLocalBuffers();

}  // namespace agg

#endif  // AGG_SERVER_BASE_LOCAL_BUFFERS_H_
