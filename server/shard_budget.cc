// The host's and the device's budgets follow one rule: as configured, or a
// share of what is there.
#include "server/shard_budget.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"

namespace agg {
namespace {

int64_t Complete(const char* what, int64_t configured_bytes,
                 int64_t granted_bytes, const std::string& source) {
  const bool configured = configured_bytes != 0;
  const int64_t budget_bytes =
      configured ? configured_bytes : DefaultBudget(granted_bytes);
  LogInfo(what, " budget: ", budget_bytes >> 20, " MiB, ",
          configured ? "as configured" : absl::StrCat("80% of the ", source));
  return budget_bytes;
}

}  // namespace

MemoryBudget CompleteBudget(const MemoryBudget& configured,
                            const HostMemory& host,
                            const DeviceMemoryUse& device) {
  MemoryBudget budget = configured;
  budget.host_bytes =
      Complete("memory", configured.host_bytes, host.bytes, host.source);
  if (device.total_bytes == 0) return budget;
  budget.device_bytes = Complete("device memory", configured.device_bytes,
                                 device.total_bytes, "device");
  const int64_t free_bytes = device.total_bytes - device.used_bytes;
  if (free_bytes < budget.device_bytes) {
    LogWarning("the device memory budget is ", budget.device_bytes >> 20,
               " MiB, but only ", free_bytes >> 20, " of ",
               device.total_bytes >> 20, " MiB are free now");
  }
  return budget;
}

}  // namespace agg
