#include "server/metrics/call_families.h"

namespace agg {

void AddCallFamilies(const std::vector<CallCount>& counts,
                     FamilyBuilder* builder) {
  builder->BeginCounter("aggserver_grpc_calls_total",
                        "gRPC calls that have ended, by method and code.");
  for (const CallCount& count : counts) {
    builder->Add(static_cast<double>(count.number),
                 {{"method", count.method}, {"code", count.code}});
  }
}

}  // namespace agg
