#include "server/http_rules.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/address.h"
#include "server/base/field_error.h"
#include "server/base/log.h"
#include "server/base/utf8.h"

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

std::vector<std::string> HostsOf(const SecuritySettings& security,
                                 const std::string& bind,
                                 const std::vector<std::string>& shards,
                                 const std::string& own) {
  std::vector<std::string> names = security.http.hosts;
  names.push_back(bind);
  names.push_back(own);
  for (const std::string& shard : shards) {
    const absl::StatusOr<Address> address = ParseAddress(shard);
    if (address.ok()) names.push_back(address->host);
  }
  return names;
}

absl::Status CheckHostHeader(absl::string_view host,
                             const std::vector<std::string>& names) {
  if (host.empty()) return absl::OkStatus();
  std::string name(host);
  // A port behind it; an IPv6 address is in brackets.
  const size_t colon = name.rfind(':');
  if (colon != std::string::npos &&
      name.find(']', colon) == std::string::npos) {
    name.resize(colon);
  }
  if (absl::EndsWith(name, ".")) name.pop_back();
  if (absl::StartsWith(name, "[") && absl::EndsWith(name, "]")) {
    name = name.substr(1, name.size() - 2);
  }
  in6_addr address;
  const bool known =
      inet_pton(AF_INET, name.c_str(), &address) == 1 ||
      inet_pton(AF_INET6, name.c_str(), &address) == 1 ||
      absl::EqualsIgnoreCase(name, "localhost") ||
      absl::EndsWithIgnoreCase(name, ".localhost") ||
      std::any_of(names.begin(), names.end(), [&](const std::string& one) {
        return one == "*" || absl::EqualsIgnoreCase(one, name);
      });
  if (known) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "Host is ", Quoted(Shown(host)),
      "; allowed: an address, localhost, the names of the job's shards, and "
      "those of security.http.hosts"));
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
