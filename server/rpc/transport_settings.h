// What a gRPC server lets one connection do, before any service sees a call;
// its credentials; and gRPC's own lines in the server's log.
#ifndef AGG_SERVER_RPC_TRANSPORT_SETTINGS_H_
#define AGG_SERVER_RPC_TRANSPORT_SETTINGS_H_

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/tls/tls_reload.h"

namespace agg {

// Whether a connection's window, which says how much it may send before it is
// read, grows with what it carries (gRPC's BDP probe). Apart from the server so
// that tests can ask. If not, gRPC has 64 KiB between two messages for all of a
// connection's streams, and each frame of 4 MiB waits for a round trip of the
// network: with 20 ms of it and 200 Mbit/s the pushes of a round of 100 MB took
// 4.6 s in place of 4.4 (tests/bench/pipeline.py --workers=1 --tensors=100
// --mbit=200 --rtt_ms=20 --loss=0.1 --congestion=bbr --publish atomic). Behind
// a link windows grow to what it holds. On loopback they grow as far as the
// reader is behind, and the server's memory beyond its plan, for nothing: but
// for the other direction of a pipelined job, of which a round of 100 MB at 1
// Gbit/s took 910 to 1,050 ms in place of 1,440 to 1,480 (--workers=1
// --tensors=100). gRPC has the setting for all connections of a server: where
// it listens on more than loopback (0.0.0.0, as on Kubernetes), windows also
// grow for the workers of its own host, with the memory that this takes.
// `listen`: "host:port", IPv6 in brackets.
bool WindowsGrow(bool pipelined, absl::string_view listen);

// How the gRPC ports of a shard are secured. Makes the credentials of one port:
// another one gets its own. With TLS each new connection gets what `tls` says
// then; connections that are open stay. Where `tls` has a CA, a peer without a
// certificate of it is refused in the handshake. The peer's names are in the
// call's AuthContext (grpcpp/security/auth_context.h). `tls` and the
// credentials outlive the server, and Open was OK; null: no TLS, and no names.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(TlsReload* tls);

// Makes gRPC's errors warnings of the log, limited by the place in gRPC's code
// that they come from, in the whole process until its end. What GRPC_VERBOSITY
// and GRPC_TRACE ask for besides is there for a person who debugs gRPC: info,
// all of it. Thread-safe.
void LogGrpcErrors();

struct TransportSettings {
  int32_t max_workers = 1;
  bool windows_grow = false;  // WindowsGrow
  // Time that a connection without a call may stay: a client that has work for
  // it keeps a stream open, and gRPC's clients connect again by themselves.
  absl::Duration idle = absl::Minutes(5);
  // Limit of a TLS handshake and the first bytes of HTTP/2: a peer that says
  // nothing has no place here.
  absl::Duration handshake = absl::Seconds(20);
  // Time without a byte, after which comes a ping. This finds dead hosts;
  // leases find dead workers.
  absl::Duration keepalive = absl::Seconds(20);
  absl::Duration keepalive_answer = absl::Seconds(20);
};

// Number of pings of a connection less than a second apart, without an answer
// to a call between them, before the server ends it. gRPC's clients ping every
// 10 s while they wait, and after data that they got.
inline constexpr int kMaxPingStrikes = 100;

// Sets sizes, open calls, windows, memory, handshakes, pings and idle
// connections. Messages that are compressed are refused with UNIMPLEMENTED.
void ApplyTransportSettings(const TransportSettings& settings,
                            grpc::ServerBuilder* builder);

}  // namespace agg

#endif  // AGG_SERVER_RPC_TRANSPORT_SETTINGS_H_
