// One line for each field.
#include "worker_client/tools/tls_flags.h"

namespace agg {

std::vector<Flag> TlsFlags(const std::string& prefix, TlsOptions* tls) {
  const std::string name = prefix + "server" + prefix.back() + "name";
  return {
      {prefix + "ca", "FILE",
       "of the CA of the servers' certificates; default: $AGG_TLS_CA",
       TextValue(&tls->ca)},
      {prefix + "certificate", "FILE",
       "to show to them; default: $AGG_TLS_CERTIFICATE",
       TextValue(&tls->certificate)},
      {prefix + "key", "FILE", "of the certificate; default: $AGG_TLS_KEY",
       TextValue(&tls->key)},
      {name, "NAME", "that their certificates have, if not the address's host",
       TextValue(&tls->server_name)},
  };
}

}  // namespace agg
