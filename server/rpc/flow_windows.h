// How much a connection may send before it is read. Apart from the server so
// that tests can ask.
#ifndef AGG_SERVER_RPC_FLOW_WINDOWS_H_
#define AGG_SERVER_RPC_FLOW_WINDOWS_H_

#include "absl/strings/string_view.h"

namespace agg {

// Whether a connection's window grows with what it carries (gRPC's BDP probe).
// If not, gRPC has 64 KiB between two messages for all of a connection's
// streams, and each frame of 4 MiB waits for a round trip of the network: with
// 20 ms of it and 200 Mbit/s the pushes of a round of 100 MB took 4.6 s in
// place of 4.4 (tests/bench/pipeline.py --workers=1 --tensors=100 --mbit=200
// --rtt_ms=20 --loss=0.1 --congestion=bbr --publish atomic). Behind a link
// windows grow to what it holds. On loopback they grow as far as the reader is
// behind, and the server's memory beyond its plan, for nothing: but for the
// other direction of a pipelined job, of which a round of 100 MB at 1 Gbit/s
// took 910 to 1,050 ms in place of 1,440 to 1,480 (--workers=1 --tensors=100).
// gRPC has the setting for all connections of a server: where it listens on
// more than loopback (0.0.0.0, as on Kubernetes), windows also grow for
// the workers of its own host, with the memory that this takes.
// `listen`: "host:port", IPv6 in brackets.
bool WindowsGrow(bool pipelined, absl::string_view listen);

}  // namespace agg

#endif  // AGG_SERVER_RPC_FLOW_WINDOWS_H_
