// Asks the address of shard 0 who coordinates the job there, so that a second
// shard 0 finds the first one before it touches any shard (P21).
#ifndef AGG_SERVER_RPC_COORDINATOR_PROBE_H_
#define AGG_SERVER_RPC_COORDINATOR_PROBE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/time/time.h"
#include "proto/tls_options.h"

namespace agg {

// Who asks, and whom.
struct CoordinatorProbe {
  std::string address;  // "host:port" of shard 0, as workers know it
  std::string job;
  uint64_t life = 0;  // of the coordinator that asks
  TlsOptions tls = {};
  absl::Duration timeout = absl::Seconds(2);
  // What this process presents itself with, asked for each call (P45); null:
  // nothing.
  std::function<std::string()> token = {};
};

// Text that names another coordinator of the job that answers at the address.
// "" if the one that asks answers itself, one of another job does, or nobody
// does within the timeout. Blocks; thread-safe.
std::string FindOtherCoordinator(const CoordinatorProbe& probe);

}  // namespace agg

#endif  // AGG_SERVER_RPC_COORDINATOR_PROBE_H_
