// Why a TLS connection cannot be made, in words. gRPC says only that it could
// not: this makes one connection more, with OpenSSL, and asks.
#ifndef AGG_SERVER_TLS_TLS_DIAGNOSIS_H_
#define AGG_SERVER_TLS_TLS_DIAGNOSIS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/tls_options.h"

namespace agg {

struct TlsTarget {
  std::string address;                      // "host:port"
  std::string server_name;                  // that its certificate must have
  TlsOptions tls;                           // of who calls; empty: without TLS
  absl::Duration limit = absl::Seconds(1);  // for all of it
};

// One line that names the file or the peer, the address and the reason: an
// expired certificate, another host's, another CA's, one that the server asks
// for or refuses, an end that speaks TLS while the other one does not. "" if
// the connection can be made, nobody answers, or the reason is another one.
// Blocks; thread-safe.
std::string DiagnoseTls(const TlsTarget& target);

// Diagnoses TLS as above, if the text of gRPC's status says that no connection
// was made; "" without any look if it says something else.
std::string WhyNotConnected(absl::string_view grpc_message,
                            const TlsTarget& target);

}  // namespace agg

#endif  // AGG_SERVER_TLS_TLS_DIAGNOSIS_H_
