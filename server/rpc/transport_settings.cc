// gRPC's arguments, each with its reason.
#include "server/rpc/transport_settings.h"

#include <grpc/compression.h>
#include <grpcpp/resource_quota.h>

#include <cstddef>
#include <cstdint>

#include "proto/byte_buffer_frame.h"
#include "proto/transport_limits.h"

namespace agg {
namespace {

// Calls that one connection may have open. A worker has fewer than ten; those
// beyond the limit wait in the client's gRPC until others have ended.
constexpr int kMaxStreamsPerConnection = 256;
// Names and values of a call's headers. A status message that is cut has at
// most three quarters of it, percent-encoded.
constexpr int kMaxMetadataBytes = 8192;

// Bytes that a peer may send on one stream before they are read: as many as the
// memory plan counts for a worker's frames. gRPC would have the window grow
// with what a connection carries, to tens of MiB on one host: a server of 8
// workers then took 1.20 of its plan, and now 0.93, in the same time. A stream
// gets at most this in one round trip of the network, 400 MB/s at 20 ms.
constexpr int kStreamWindowBytes = kMaxMessageBytes;

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

// Memory that gRPC may hold for connections, before a session is known. Twice
// what the memory plan counts for frames (two of 4 MiB per worker), since a
// message may have 8 MiB, and room for those who only watch or pull.
size_t TransportBytes(int32_t max_workers) {
  constexpr size_t kPerWorker = 2 * size_t{kMaxMessageBytes};
  constexpr size_t kForOthers = size_t{256} << 20;
  return kForOthers + static_cast<size_t>(max_workers) * kPerWorker;
}

}  // namespace

void ApplyTransportSettings(const TransportSettings& settings,
                            grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder->SetMaxSendMessageSize(kMaxMessageBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                              kMaxStreamsPerConnection);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, settings.windows_grow);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
                              kStreamWindowBytes);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE,
                              kMaxHttp2FrameBytes);
  grpc::ResourceQuota quota("agg_server");
  quota.Resize(TransportBytes(settings.max_workers));
  builder->SetResourceQuota(quota);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              Milliseconds(settings.handshake));
  // A message of 8 MiB can expand to 8 GiB, and gRPC 1.51 looks at its size
  // after it has expanded it: 0.5 MB took 570 MiB of the server's memory
  // (tests/e2e/attacks_test.py). Gradients are no good to compress.
  for (const grpc_compression_algorithm algorithm :
       {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder->SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                              Milliseconds(settings.idle));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                              Milliseconds(settings.keepalive));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                              Milliseconds(settings.keepalive_answer));
  // gRPC's own, 2 strikes and 5 min, would end connections of clients that
  // wait.
  builder->AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, kMaxPingStrikes);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

}  // namespace agg
