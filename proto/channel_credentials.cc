// gRPC's provider looks at the files, on a thread of its own: a table keeps it
// to one for all channels of a process.
#include "proto/channel_credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <mutex>
#include <tuple>

#include "proto/grpc_transport.h"

namespace agg {
namespace {

using grpc::experimental::FileWatcherCertificateProvider;
using Provider = std::shared_ptr<FileWatcherCertificateProvider>;
using Files = std::tuple<std::string, std::string, std::string, unsigned>;

unsigned WholeSeconds(absl::Duration time) {
  constexpr int64_t kDay = 86400;
  return static_cast<unsigned>(
      std::min(kDay, std::max(int64_t{1}, absl::ToInt64Seconds(absl::Ceil(
                                              time, absl::Seconds(1))))));
}

// Never destroyed: a process has one set of files, or a few.
Provider ProviderOf(const TlsOptions& tls) {
  static std::mutex* const mutex = new std::mutex;
  static auto* const known = new std::map<Files, Provider>;
  const unsigned seconds = WholeSeconds(tls.reload);
  const std::lock_guard<std::mutex> lock(*mutex);
  Provider& provider =
      (*known)[Files(tls.ca, tls.certificate, tls.key, seconds)];
  if (provider == nullptr) {
    provider = std::make_shared<FileWatcherCertificateProvider>(
        tls.key, tls.certificate, tls.ca, seconds);
  }
  return provider;
}

}  // namespace

std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(
    const TlsOptions& tls) {
  KeepGrpcInitialized();
  if (!tls.any()) return grpc::InsecureChannelCredentials();
  assert(!tls.ca.empty() && tls.certificate.empty() == tls.key.empty());
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(ProviderOf(tls));
  options.watch_root_certs();
  if (!tls.certificate.empty()) options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

std::string ServerNameOf(const TlsOptions& tls, const std::string& address) {
  if (!tls.server_name.empty()) return tls.server_name;
  std::string host = address.substr(0, address.rfind(':'));
  if (!host.empty() && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return host;
}

void SetServerName(const TlsOptions& tls, const std::string& address,
                   grpc::ChannelArguments* arguments) {
  if (!tls.any()) return;
  arguments->SetSslTargetNameOverride(ServerNameOf(tls, address));
}

}  // namespace agg
