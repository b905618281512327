// Loopback is safe without TLS, and no other host reaches it.
#include "server/bind_host.h"

#include "server/base/field_error.h"
#include "server/base/log.h"

namespace agg {

std::string BindHost(const Address& address, const std::string& bind) {
  if (!bind.empty()) return bind;
  return IsLoopback(address.host) && address.host != "localhost" ? address.host
                                                                 : "127.0.0.1";
}

bool IsInsecure(const std::string& host, bool tls) {
  return !tls && !IsLoopback(host);
}

absl::Status CheckBind(const std::string& host, bool tls, bool insecure) {
  if (insecure || !IsInsecure(host, tls)) return absl::OkStatus();
  return FieldError(
      "--bind", Quoted(host),
      "loopback without TLS; others with security { tls { .. } } in the job's "
      "configuration, or with security { insecure: true }, and then anyone who "
      "reaches the port can read and change the model");
}

void WarnAboutBind(const Address& address, const std::string& host, bool tls) {
  if (IsInsecure(host, tls)) {
    LogWarning("insecure: listening on ", host,
               " without TLS: tokens, gradients and parameters cross the "
               "network in clear text, and without identities anyone who "
               "reaches it can change the model");
  }
  if (IsLoopback(host) && !IsLoopback(address.host)) {
    LogWarning("listening on ", host, " only, but this shard's address is ",
               address.host, ": other hosts cannot reach it without --bind");
  }
}

}  // namespace agg
