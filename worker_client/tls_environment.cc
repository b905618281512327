// An empty variable counts as none.
#include "worker_client/tls_environment.h"

#include <cstdlib>
#include <string>

namespace agg {
namespace {

void Take(const char* name, std::string* value) {
  const char* const found = std::getenv(name);
  if (value->empty() && found != nullptr) *value = found;
}

}  // namespace

TlsOptions WithTlsEnvironment(TlsOptions tls) {
  const bool own = !tls.certificate.empty() || !tls.key.empty();
  Take("AGG_TLS_CA", &tls.ca);
  Take("AGG_TLS_SERVER_NAME", &tls.server_name);
  if (own) return tls;
  Take("AGG_TLS_CERTIFICATE", &tls.certificate);
  Take("AGG_TLS_KEY", &tls.key);
  return tls;
}

}  // namespace agg
