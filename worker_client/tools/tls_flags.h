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
std::vector<Flag> TlsFlags(const std::string& prefix, TlsOptions* tls);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TOOLS_TLS_FLAGS_H_
