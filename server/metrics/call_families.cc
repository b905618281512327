#include "server/metrics/call_families.h"

#include <cstddef>
#include <string>

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

void AddDenialFamilies(const DenialCounts* counts, FamilyBuilder* builder) {
  static const DenialCounts* const none = new DenialCounts;
  if (counts == nullptr) counts = none;
  builder->Gauge("aggserver_identities",
                 "Identities of the configuration; 0: everybody who reaches "
                 "the port may do everything.",
                 static_cast<double>(counts->num_identities()));
  builder->BeginCounter("aggserver_denied_total",
                        "Calls and connections that were refused: for who made "
                        "them, or by a limit.");
  for (size_t i = 0; i < kNumDenialReasons; ++i) {
    const auto reason = static_cast<DenialReason>(i);
    builder->Add(static_cast<double>(counts->count(reason)),
                 {{"reason", std::string(DenialName(reason))}});
  }
}

}  // namespace agg
