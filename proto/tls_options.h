// What a client of a job's gRPC ports needs to speak TLS. A plain struct: the
// workers' client and the shards, as clients of each other, have the same.
#ifndef AGG_PROTO_TLS_OPTIONS_H_
#define AGG_PROTO_TLS_OPTIONS_H_

#include <string>

#include "absl/time/time.h"

namespace agg {

// Paths of PEM files, which are read again when they change: connections that
// are open stay, new ones see the new files. With all of them empty there is
// no TLS.
struct TlsOptions {
  std::string ca;           // of the servers' certificates
  std::string certificate;  // this client's, and its intermediates
  std::string key;          // of the certificate; both or none
  // The name that a server's certificate has to have, in place of the host of
  // its address.
  std::string server_name;
  // Time between two looks at the files; gRPC counts whole seconds, at least 1.
  absl::Duration reload = absl::Seconds(60);

  bool any() const {
    return !ca.empty() || !certificate.empty() || !key.empty();
  }
};

}  // namespace agg

#endif  // AGG_PROTO_TLS_OPTIONS_H_
