// Who may connect to a server at all.
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "server/access/access_rules.h"
#include "server/access_parts.h"
#include "server/base/address.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/bind_host.h"
#include "server/http_rules.h"
#include "server/observation.h"
#include "server/server.h"
#include "server/tls/tls_files.h"
#include "server/tls/tls_reload.h"
#include "server/tls/tls_session.h"

namespace agg {
namespace {

std::string OwnHostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

// What is wrong with the files is said here, and not by each connection.
absl::Status Server::Secure(const Address& address) {
  const SecuritySettings& security = options_.security;
  absl::Status status =
      CheckBind(bind_host_, security.tls(), security.insecure);
  if (!status.ok()) return status;
  WarnAboutBind(address, bind_host_, security.tls());
  http_ = RulesOfHttp(security, options_.metrics.bind, bind_host_);
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

bool Server::ServesMetrics() const {
  return start_.metrics_port.has_value() || options_.metrics.port != 0;
}

std::function<absl::Status(const std::string&, const std::string&)>
Server::HostCheck() {
  return [this, names = HostsOf(options_.security, http_.bind, options_.shards,
                                OwnHostName())](const std::string& host,
                                                const std::string& from) {
    const absl::Status status = CheckHostHeader(host, names);
    if (!status.ok()) access_->NoteHost(status, from);
    return status;
  };
}

absl::Status Server::StartMetrics() {
  if (!ServesMetrics()) return absl::OkStatus();
  absl::Status status = CheckHttp(http_, options_.security);
  if (!status.ok()) return status;
  WarnAboutHttp(http_);
  HttpTransport transport;
  transport.strict = http_.strict;
  if (http_.tls) {
    absl::StatusOr<std::unique_ptr<TlsAcceptor>> acceptor =
        TlsAcceptor::Make(tls_.get());
    if (!acceptor.ok()) return acceptor.status();
    http_tls_ = *std::move(acceptor);
    transport.tls = http_tls_.get();
  }
  MetricsPages pages;
  pages.ready = [this] { return Ready(); };
  pages.open_health = options_.access.health;
  if (http_.asks) {
    pages.admit = [this](const std::string& authorization,
                         const std::string& from) {
      return access_->AdmitReader(authorization, from, kHttpPages);
    };
    pages.admit_scrape = [this](const std::string& authorization,
                                const std::string& from) {
      return access_->AdmitReader(authorization, from, kHttpMetrics);
    };
    if (!access_->has_reader()) {
      LogWarning(
          "nobody can read metrics and status page: no identity with "
          "the role observer or admin, or metrics, has a token_file");
    }
  }
  if (!http_.asks && !http_.tls) pages.admit_host = HostCheck();
  return observation_->Serve(
      http_.bind,
      start_.metrics_port.value_or(
          HttpPort(options_.metrics.port, options_.shards, start_.ordinal)),
      std::move(pages), transport);
}

}  // namespace agg
