// Asks a job's processes what `aggctl doctor` judges.
#ifndef AGG_WORKER_CLIENT_TOOLS_DOCTOR_FACTS_H_
#define AGG_WORKER_CLIENT_TOOLS_DOCTOR_FACTS_H_

#include "worker_client/tools/admin_client.h"
#include "worker_client/tools/aggctl_flags.h"
#include "worker_client/tools/doctor.h"

namespace agg {

// Asks `asked`, the process at flags.coordinator, which may be any shard, for
// the addresses of all, and then each of them, one after another, each call for
// flags.timeout at most. What one does not answer is in the facts. Fails, as
// AdminClient does, if `asked` answers nothing at all.
AggctlResult GatherFacts(const AggctlFlags& flags, AdminClient* asked,
                         DoctorFacts* facts);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TOOLS_DOCTOR_FACTS_H_
