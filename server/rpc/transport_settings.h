// What a gRPC server lets one connection do, before any service sees a call.
#ifndef AGG_SERVER_RPC_TRANSPORT_SETTINGS_H_
#define AGG_SERVER_RPC_TRANSPORT_SETTINGS_H_

#include <grpcpp/server_builder.h>

#include <cstdint>

namespace agg {

struct TransportSettings {
  int32_t max_workers = 1;
  bool windows_grow = false;  // flow_windows.h
};

// Sizes, open calls, windows, memory, handshakes, pings and idle connections.
// Messages that are compressed are refused with UNIMPLEMENTED.
void ApplyTransportSettings(const TransportSettings& settings,
                            grpc::ServerBuilder* builder);

}  // namespace agg

#endif  // AGG_SERVER_RPC_TRANSPORT_SETTINGS_H_
