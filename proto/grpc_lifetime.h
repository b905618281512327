// gRPC's library-wide state, kept until the process ends.
#ifndef AGG_PROTO_GRPC_LIFETIME_H_
#define AGG_PROTO_GRPC_LIFETIME_H_

namespace agg {

// Call before making a server or channel. Without it, destroying the last of
// them in a process shuts the library down, and gRPC 1.51 then often waits for
// its backup poller: 10 seconds, seen as a server or client that hangs when it
// ends. Thread-safe; the first call counts.
void KeepGrpcInitialized();

}  // namespace agg

#endif  // AGG_PROTO_GRPC_LIFETIME_H_
