// Loopback is safe without TLS, and no other host reaches it.
#include "server/bind_host.h"

#include "server/base/log.h"

namespace agg {

std::string BindHost(const Address& address, const std::string& bind) {
  if (!bind.empty()) return bind;
  return IsLoopback(address.host) && address.host != "localhost" ? address.host
                                                                 : "127.0.0.1";
}

void WarnAboutBind(const Address& address, const std::string& host) {
  if (!IsLoopback(host)) {
    LogWarning("listening on ", host, " without TLS: anyone who reaches ",
               "this port can read and change the model");
  } else if (!IsLoopback(address.host)) {
    LogWarning("listening on ", host, " only, but this shard's address is ",
               address.host, ": other hosts cannot reach it without --bind");
  }
}

}  // namespace agg
