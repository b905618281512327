// TLS without a line of code: from the environment of a worker or a tool.
#ifndef AGG_WORKER_CLIENT_TLS_ENVIRONMENT_H_
#define AGG_WORKER_CLIENT_TLS_ENVIRONMENT_H_

#include "proto/tls_options.h"

namespace agg {

// `tls`, with AGG_TLS_CA, AGG_TLS_CERTIFICATE, AGG_TLS_KEY and
// AGG_TLS_SERVER_NAME in place of what is "". A certificate and its key come
// together: neither is taken if the other one is set.
TlsOptions WithTlsEnvironment(TlsOptions tls);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TLS_ENVIRONMENT_H_
