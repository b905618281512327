// Who may connect to a server at all.
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "server/base/address.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/bind_host.h"
#include "server/observation.h"
#include "server/server.h"
#include "server/tls/tls_files.h"
#include "server/tls/tls_reload.h"

namespace agg {

// What is wrong with the files is said here, and not by each connection.
absl::Status Server::Secure(const Address& address) {
  const SecuritySettings& security = options_.security;
  absl::Status status =
      CheckBind(bind_host_, security.tls(), security.insecure);
  if (!status.ok()) return status;
  WarnAboutBind(address, bind_host_, security.tls());
  if (!security.tls()) return absl::OkStatus();
  tls_ = std::make_unique<TlsReload>(security.files, security.reload,
                                     Clock::Real());
  status = tls_->Open();
  if (status.ok()) status = CheckTlsOptions(security.peers, absl::Now());
  if (!status.ok()) return status;
  LogInfo("TLS with ", security.files.certificate,
          tls_->has_ca() ? "; who connects shows a certificate of "
                         : "; nobody is asked for a certificate",
          security.files.ca);
  return absl::OkStatus();
}

absl::Status Server::StartMetrics() {
  const int configured = options_.metrics.port;
  if (!start_.metrics_port.has_value() && configured == 0) {
    return absl::OkStatus();
  }
  // The page and the metrics have no TLS: who else sees them is said apart.
  std::string bind = options_.metrics.bind;
  if (bind.empty()) bind = IsLoopback(bind_host_) ? bind_host_ : "127.0.0.1";
  return observation_->Serve(bind, start_.metrics_port.value_or(configured),
                             [this] { return Ready(); });
}

}  // namespace agg
