// What a gRPC server lets one connection do, before any service sees a call.
#ifndef AGG_SERVER_RPC_TRANSPORT_SETTINGS_H_
#define AGG_SERVER_RPC_TRANSPORT_SETTINGS_H_

#include <grpcpp/server_builder.h>

#include <cstdint>

#include "absl/time/time.h"

namespace agg {

struct TransportSettings {
  int32_t max_workers = 1;
  bool windows_grow = false;  // flow_windows.h
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
