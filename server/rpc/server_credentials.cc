// gRPC's own file watcher takes files that do not go together, and has no
// certificate then: who replaces the key first would close the port for a
// while. Its C interface asks for the files at each handshake instead, and
// keeps what it has when there are no better ones.
#include "server/rpc/server_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/types/optional.h"
#include "proto/grpc_lifetime.h"
#include "server/base/log.h"

namespace agg {
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

}  // namespace agg
