#include "server/http_rules.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "server/base/address.h"
#include "server/base/field_error.h"
#include "server/base/log.h"

namespace agg {
namespace {

std::string HostOf(const std::string& shard) {
  const absl::StatusOr<Address> address = ParseAddress(shard);
  if (!address.ok()) return shard;
  return IsLoopback(address->host) ? "localhost" : address->host;
}

}  // namespace

HttpRules RulesOfHttp(const SecuritySettings& security,
                      const std::string& metrics_bind,
                      const std::string& grpc_bind) {
  HttpRules rules;
  rules.bind = metrics_bind;
  if (rules.bind.empty()) {
    rules.bind = IsLoopback(grpc_bind) ? grpc_bind : "127.0.0.1";
  }
  const bool loopback = IsLoopback(rules.bind);
  rules.tls = security.tls() && !security.http.insecure;
  rules.asks = security.http.asks;
  rules.shows_tensors =
      security.http.tensors == HttpSettings::Tensors::kAuto
          ? loopback || rules.asks
          : security.http.tensors == HttpSettings::Tensors::kShown;
  rules.insecure = !rules.tls && !loopback;
  rules.strict = rules.tls && !loopback;
  return rules;
}

int HttpPort(int port, const std::vector<std::string>& shards, int ordinal) {
  const auto self = shards.begin() + ordinal;
  return port + static_cast<int>(std::count_if(
                    shards.begin(), self, [&](const std::string& shard) {
                      return HostOf(shard) == HostOf(*self);
                    }));
}

absl::Status CheckHttp(const HttpRules& rules,
                       const SecuritySettings& security) {
  if (!rules.insecure || security.http.insecure) return absl::OkStatus();
  return FieldError(
      "metrics.bind", Quoted(rules.bind),
      "loopback without TLS; others with security { tls { .. } } in the job's "
      "configuration, or with security { http { insecure: true } }, and then "
      "anyone on the way reads the pages");
}

void WarnAboutHttp(const HttpRules& rules) {
  if (rules.insecure) {
    LogWarning("insecure: metrics and status page are on ", rules.bind,
               " without TLS: anyone on the way reads them",
               rules.asks ? ", and the tokens" : "");
  }
  if (!rules.asks && !IsLoopback(rules.bind)) {
    LogWarning("metrics and status page are on ", rules.bind,
               " for everybody who reaches them: security.identities, or "
               "security.http.pages, would ask for a token");
  }
}

}  // namespace agg
