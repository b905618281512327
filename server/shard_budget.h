// How much memory this process's shard may use, where the configuration leaves
// it open.
#ifndef AGG_SERVER_SHARD_BUDGET_H_
#define AGG_SERVER_SHARD_BUDGET_H_

#include "kernels/backend.h"
#include "server/config/memory_budget.h"
#include "server/round/shard_options.h"

namespace agg {

// `configured`, with 80% of what is there in place of a 0 (ARCHITECTURE.md,
// decision 13). Logs both budgets, and warns if the device has less free memory
// than its budget. Without a device, device_bytes stays as it is.
MemoryBudget CompleteBudget(const MemoryBudget& configured,
                            const HostMemory& host,
                            const DeviceMemoryUse& device);

}  // namespace agg

#endif  // AGG_SERVER_SHARD_BUDGET_H_
