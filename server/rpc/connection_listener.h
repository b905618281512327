// Listens in gRPC's place. gRPC 1.51 takes connections without end, and when
// the process has no descriptor left for one it closes its port for good
// (grpc/grpc tcp_server_posix.cc, "Failed accept4"): whoever can connect could
// end a job. Here connections are bounded, and a failure of accept is for a
// moment.
#ifndef AGG_SERVER_RPC_CONNECTION_LISTENER_H_
#define AGG_SERVER_RPC_CONNECTION_LISTENER_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/file_descriptor.h"
#include "server/rpc/open_connections.h"

namespace agg {

// Sockets that listen on "host:port" (port 0: any; IPv6 in brackets; every
// address of a name; 0.0.0.0 and [::] are all addresses of both kinds), with no
// SO_REUSEPORT: two servers on one port are an error. UNAVAILABLE with the
// system's reason.
absl::StatusOr<std::vector<FileDescriptor>> ListenOn(absl::string_view address);

// The port of such a socket.
int PortOf(const FileDescriptor& socket);

// Connections come in from construction to destruction, on a thread of its own,
// which also ends those of Unix sockets whose other end takes nothing for
// kUserTimeout, as the kernel does with TCP's.
class ConnectionListener {
 public:
  // Takes a connection, which does not block; `local`: of a Unix socket.
  using Take = std::function<void(int listener, int fd, bool local)>;
  // Time without a byte that the other end takes, while some wait, after which
  // a connection ends: gRPC has as much for its own sockets (its keepalive
  // timeout).
  static constexpr absl::Duration kUserTimeout = absl::Seconds(20);

  struct Parts {
    std::vector<FileDescriptor> ports;
    std::vector<FileDescriptor> local_sockets;
    // Counts them, and ends them; those beyond its limit are closed at once.
    std::shared_ptr<OpenConnections> open;
    Take take;
    std::function<void(const std::string& host)> on_refused;  // may be null
    absl::Duration user_timeout = kUserTimeout;
  };
  explicit ConnectionListener(Parts parts);
  // Stops listening. Connections that are open stay.
  ~ConnectionListener();
  ConnectionListener(const ConnectionListener&) = delete;
  ConnectionListener& operator=(const ConnectionListener&) = delete;

 private:
  void Loop();
  // Accepts a connection. False: there was none, or no memory for it.
  bool AcceptOne(int listener, bool local);
  void EndStuck();

  const Parts parts_;
  const FileDescriptor stop_;
  bool failing_ = false;  // the thread's: the last accept, for want of memory
  std::thread thread_;    // last: it uses the others
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_CONNECTION_LISTENER_H_
