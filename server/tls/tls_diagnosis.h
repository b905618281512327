// Why a TLS connection cannot be made, in words. gRPC says only that it could
// not: this makes one connection more, with OpenSSL, and asks.
#ifndef AGG_SERVER_TLS_TLS_DIAGNOSIS_H_
#define AGG_SERVER_TLS_TLS_DIAGNOSIS_H_

#include <sys/socket.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/tls_options.h"
#include "server/base/address.h"
#include "server/base/file_descriptor.h"

namespace agg {

// A connected socket that does not block, to the first address of "host:port"
// that takes it by `deadline`; not valid if none does.
FileDescriptor ConnectTcp(const std::string& address, absl::Time deadline);

// Waits until the socket can be read, or written. False: the deadline came.
bool AwaitSocket(int socket, bool write, absl::Time deadline);

struct SocketAddress {
  sockaddr_storage bytes = {};
  socklen_t size = 0;
};

using Resolver = std::function<std::vector<SocketAddress>(const Address&)>;

// Lookups that a name server holds up, of the process.
inline constexpr int kMaxLookups = 4;

// Returns the addresses of a host by a deadline, which the system's own call
// does not have. None: nobody has that name, it is not known by `deadline`, or
// kMaxLookups are on their way already. A lookup that is late goes on by
// itself, on a thread of its own. `resolve` null: the system's. Thread-safe.
std::vector<SocketAddress> ResolveHost(const Address& address,
                                       absl::Time deadline,
                                       const Resolver& resolve = nullptr);

// Why the first certificate of a PEM text cannot be shown for that host, a DNS
// name or an address: "is for a.example and not for b.example"; "": it can.
std::string WhyNotFor(absl::string_view pem, const std::string& host);

struct TlsTarget {
  std::string address;                      // "host:port"
  std::string server_name;                  // that its certificate must have
  TlsOptions tls;                           // of who calls; empty: without TLS
  absl::Duration limit = absl::Seconds(1);  // for all of it
};

// One line that names the file or the peer, the address and the reason: an
// expired certificate, another host's, another CA's, one that the server asks
// for or refuses, an end that speaks TLS while the other one does not. "" if
// the connection can be made, nobody answers, or the reason is another one.
// Blocks; thread-safe.
std::string DiagnoseTls(const TlsTarget& target);

// Diagnoses TLS as above, if the text of gRPC's status says that no connection
// was made; "" without any look if it says something else.
std::string WhyNotConnected(absl::string_view grpc_message,
                            const TlsTarget& target);

}  // namespace agg

#endif  // AGG_SERVER_TLS_TLS_DIAGNOSIS_H_
