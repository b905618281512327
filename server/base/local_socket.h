// Abstract Unix sockets: they have a name in the network namespace and no file.
// What a server and a client must agree on, without gRPC; and messages with
// file descriptors between two processes of one host.
#ifndef AGG_SERVER_BASE_LOCAL_SOCKET_H_
#define AGG_SERVER_BASE_LOCAL_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
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

// How much a socket takes before its writer has to wait. It is given so much,
// or less where net.core.wmem_max is lower.
inline constexpr int kLocalBufferBytes = 1 << 20;

// Gives each connected abstract Unix socket of this process whose name begins
// with "agg-", its own or its peer's, a send buffer of kLocalBufferBytes,
// unless it has one. gRPC has no option for that, so this looks at all of the
// process's descriptors: some microseconds, to be called when a stream begins.
// Does nothing where /proc cannot be read. Thread-safe.
void WidenLocalBuffers();

// A message, on the wire: the number of bytes, 4 bytes little endian, with
// which the descriptors come (SCM_RIGHTS); then the bytes.
struct DescriptorMessage {
  std::string bytes;
  std::vector<FileDescriptor> descriptors;
};

inline constexpr size_t kMaxDescriptors = 16;

// Sends a message on `socket`, a connected Unix stream socket. Gives up with
// DEADLINE_EXCEEDED after `patience` in all, whatever the other end does, and
// with UNAVAILABLE and the reason if it is gone. REQUIRES: at most
// kMaxDescriptors.
absl::Status SendMessage(int socket, absl::string_view bytes,
                         absl::Span<const int> descriptors,
                         absl::Duration patience);

// Receives one, with the errors of SendMessage. INVALID_ARGUMENT for a message
// of more than `max_bytes`, or with more descriptors than kMaxDescriptors: what
// came is closed.
absl::StatusOr<DescriptorMessage> ReceiveMessage(int socket, size_t max_bytes,
                                                 absl::Duration patience);

}  // namespace agg

#endif  // AGG_SERVER_BASE_LOCAL_SOCKET_H_
