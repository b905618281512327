// What `aggctl doctor --config` finds before a job is started: whether this
// machine has what the configuration names. No server is asked.
#ifndef AGG_WORKER_CLIENT_TOOLS_DOCTOR_CONFIG_H_
#define AGG_WORKER_CLIENT_TOOLS_DOCTOR_CONFIG_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "worker_client/tools/doctor.h"

namespace agg {

// What is asked about this machine; a test replaces it.
struct MachineFacts {
  int64_t granted_bytes = 0;   // of memory, by machine and control group; 0:
  std::string granted_source;  // not known
};

// Checks the file as agg_server does, and reads and tries what it names: binds
// the ports of the shards that this machine has the addresses of, and lets them
// go again; looks whether this user may write folders and read files. Nothing
// is written. `parameters`: of the model, for the plan of the memory; 0: not
// known, and the plan is left out. A finding never has what a file of tokens or
// a key says.
Findings CheckConfigFile(const std::string& path, int64_t parameters,
                         const MachineFacts& machine, absl::Time now);

// The machine that this process runs on.
MachineFacts ThisMachine();

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TOOLS_DOCTOR_CONFIG_H_
