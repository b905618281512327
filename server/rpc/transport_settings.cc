// gRPC's arguments, each with its reason; the credentials of a port; and the
// limit for gRPC's lines in the log.
#include "server/rpc/transport_settings.h"

#include <grpc/compression.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <grpcpp/resource_quota.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/types/optional.h"
#include "proto/byte_buffer_frame.h"
#include "proto/grpc_transport.h"
#include "server/base/address.h"
#include "server/base/log.h"
#include "server/base/mutex.h"

namespace agg {

bool WindowsGrow(bool pipelined, absl::string_view listen) {
  absl::string_view host = listen.substr(0, listen.rfind(':'));
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  return pipelined || !IsLoopback(host);
}

// gRPC's own file watcher takes files that do not go together, and has no
// certificate then: who replaces the key first would close the port for a
// while. Its C interface asks for the files at each handshake instead, and
// keeps what it has when there are no better ones.

namespace {

class ReloadedCredentials : public grpc::ServerCredentials {
 public:
  ReloadedCredentials(TlsReload* tls, bool asks_for_certificates)
      : tls_(tls),
        credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                asks_for_certificates
                    ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                    : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
                &Fetch, this))) {}
  ~ReloadedCredentials() override {
    grpc_server_credentials_release(credentials_);
  }

  // Would have to be asked at each call. Nobody sets one: to ignore it would
  // let in whom it refuses.
  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
    LogError("a TLS port takes no AuthMetadataProcessor");
    std::abort();
  }

 private:
  int AddPortToServer(const std::string& address,
                      grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  // On a thread of gRPC, at the beginning of a handshake, one at a time.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    auto* const credentials = static_cast<ReloadedCredentials*>(self);
    const absl::optional<TlsContents> contents =
        credentials->tls_->Next(&credentials->seen_);
    if (!contents.has_value()) {
      return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    }
    const grpc_ssl_pem_key_cert_pair pair = {contents->key.c_str(),
                                             contents->certificate.c_str()};
    // gRPC aborts without a CA, though nobody is asked for a certificate: then
    // any that can be read does, and is used for nothing.
    const std::string& ca =
        contents->ca.empty() ? contents->certificate : contents->ca;
    *config = grpc_ssl_server_certificate_config_create(ca.c_str(), &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  TlsReload* const tls_;
  uint64_t seen_ = 0;  // guarded by gRPC's lock of the port
  grpc_server_credentials* const credentials_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(TlsReload* tls) {
  KeepGrpcInitialized();
  if (tls == nullptr) return grpc::InsecureServerCredentials();
  return std::make_shared<ReloadedCredentials>(tls, tls->has_ca());
}

// gRPC's own lines. A peer can cause one with each connection, such as a TLS
// handshake that fails: so their place is their reason.

namespace {

void Write(gpr_log_func_args* line) {
  const bool is_error = line->severity == GPR_LOG_SEVERITY_ERROR;
  // A traced header with a token; what dumps bytes has them all the same.
  if (!is_error && absl::StrContains(line->message, "authorization")) return;
  absl::string_view file = line->file;
  file = file.substr(file.rfind('/') + 1);  // npos + 1 is 0
  const std::string place = absl::StrCat(file, ":", line->line);
  std::string text = absl::StrCat(
      "gRPC: ", absl::StripAsciiWhitespace(line->message), " (", place, ")");
  if (is_error) {
    LogLineOf(LogLevel::kWarning,
              LogPiece::At(line->file, line->line, absl::StrCat("gRPC", place)),
              text);
  } else {
    LogLine(LogLevel::kInfo,
            LogPiece::At(line->file, line->line, std::move(text)));
  }
}

}  // namespace

void LogGrpcErrors() { gpr_set_log_function(&Write); }

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
