// When a certificate in use is over.
#ifndef AGG_SERVER_METRICS_CERTIFICATE_EXPIRY_H_
#define AGG_SERVER_METRICS_CERTIFICATE_EXPIRY_H_

#include <string>

#include "absl/time/time.h"

namespace agg {

struct CertificateExpiry {
  std::string file;  // what the configuration calls it: "client_ca"
  absl::Time time = absl::InfiniteFuture();  // so: there is none
};

}  // namespace agg

#endif  // AGG_SERVER_METRICS_CERTIFICATE_EXPIRY_H_
