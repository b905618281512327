// The flags of TLS, the same for every program that talks to a job.
#ifndef AGG_WORKER_CLIENT_TOOLS_TLS_FLAGS_H_
#define AGG_WORKER_CLIENT_TOOLS_TLS_FLAGS_H_

#include <string>
#include <vector>

#include "proto/tls_options.h"
#include "server/base/flags.h"

namespace agg {

// They set `*tls`, which must outlive them. `prefix`: "--tls_" or "--tls-", as
// the program spells its other flags.
inline std::vector<Flag> TlsFlags(const std::string& prefix, TlsOptions* tls) {
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

#endif  // AGG_WORKER_CLIENT_TOOLS_TLS_FLAGS_H_
