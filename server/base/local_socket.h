// Abstract Unix sockets: they have a name in the network namespace and no file.
// What a server and a client must agree on, without gRPC.
#ifndef AGG_SERVER_BASE_LOCAL_SOCKET_H_
#define AGG_SERVER_BASE_LOCAL_SOCKET_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/base/file_descriptor.h"

namespace agg {

// "agg-" and 16 hexadecimal digits of `life`, random bits of one process's run:
// hard to guess, and never that of another run.
std::string LocalSocketName(uint64_t life);

// Where that process hands out its shared memory (P39).
std::string RegionSocketName(uint64_t life);

// 1 to 64 letters, digits, '-' and '.': what can stand in a gRPC target as it
// is. A client checks what it was sent.
bool IsLocalSocketName(absl::string_view name);

// What gRPC calls the socket, to listen or to connect: "unix-abstract:NAME".
std::string LocalSocketTarget(absl::string_view name);

// Listens on it for a moment. UNAVAILABLE with the system's reason: the name is
// taken, or the process may have no such sockets. REQUIRES: it is a name.
absl::Status CheckLocalListen(absl::string_view name);

// A socket that listens on it, whose accept does not wait. UNAVAILABLE as
// above.
absl::StatusOr<FileDescriptor> ListenLocally(absl::string_view name);

// Connects to a process of this user or of root that listens on it. Never
// waits. UNAVAILABLE with the reason; INVALID_ARGUMENT for what is not a name.
absl::StatusOr<FileDescriptor> ConnectLocally(absl::string_view name);

// Whether the process at the other end was of this user or of root when it
// connected, or began to listen (SO_PEERCRED).
bool IsTrustedPeer(int socket);

// Whether a process of this user or of root listens on it in this network
// namespace. Connects for a moment; never waits. False for what is not a name.
bool CanConnectLocally(absl::string_view name);

}  // namespace agg

#endif  // AGG_SERVER_BASE_LOCAL_SOCKET_H_
