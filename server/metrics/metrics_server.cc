#include "server/metrics/metrics_server.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "prometheus/collectable.h"
#include "prometheus/exposer.h"
#include "server/metrics/metrics.h"

namespace agg {
namespace {

// CivetWeb takes a list: a comma would open a second port, and a letter after
// the port would ask for TLS.
bool IsAddress(absl::string_view bind) {
  return !bind.empty() &&
         std::all_of(bind.begin(), bind.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) ||
                  absl::string_view(".-_:[]").find(static_cast<char>(c)) !=
                      absl::string_view::npos;
         });
}

std::string HostPort(const std::string& bind, int port) {
  const bool bare_ipv6 =
      bind.find(':') != std::string::npos && bind.front() != '[';
  return bare_ipv6 ? absl::StrCat("[", bind, "]:", port)
                   : absl::StrCat(bind, ":", port);
}

}  // namespace

class MetricsServer::Impl {
 public:
  // Throws what prometheus-cpp throws: an std::exception if `address` cannot
  // be bound.
  Impl(const std::string& address,
       std::shared_ptr<prometheus::Collectable> collectable)
      : collectable_(std::move(collectable)), exposer_(address, kNumThreads) {
    exposer_.RegisterCollectable(collectable_);
  }

  int port() const {
    const std::vector<int> ports = exposer_.GetListeningPorts();
    return ports.empty() ? 0 : ports.front();
  }

 private:
  // One for Prometheus, one for whoever looks at it by hand.
  static constexpr int kNumThreads = 2;

  // The exposer holds a weak reference; it is destroyed, and its threads
  // joined, before this one is dropped.
  const std::shared_ptr<prometheus::Collectable> collectable_;
  prometheus::Exposer exposer_;
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& bind, int port, const Metrics& metrics) {
  if (!IsAddress(bind)) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics.bind is \"", bind,
                     "\"; it must be an address or a host name"));
  }
  if (port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics.port is ", port, "; it must be in 0..65535"));
  }
  const std::string address = HostPort(bind, port);
  try {
    auto impl = std::make_unique<Impl>(address, metrics.collectable());
    return absl::WrapUnique(new MetricsServer(std::move(impl)));
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat(
        "cannot serve metrics on ", address, ": ", error.what(),
        "; is the port in use, and the address one of this machine's?"));
  }
}

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}

MetricsServer::~MetricsServer() = default;

int MetricsServer::port() const { return impl_->port(); }

}  // namespace agg
