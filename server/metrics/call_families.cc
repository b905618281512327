#include "server/metrics/call_families.h"

#include <cstddef>
#include <limits>
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

// NaN and not +Inf, so that a job without TLS meets no condition.
void AddCertificateFamilies(const std::vector<CertificateExpiry>& expiries,
                            FamilyBuilder* builder) {
  builder->BeginGauge("aggserver_certificate_expiry_timestamp_seconds",
                      "Unix time at which what security.tls has in use "
                      "expires; NaN without.");
  for (const CertificateExpiry& expiry : expiries) {
    const double seconds =
        expiry.time == absl::InfiniteFuture()
            ? std::numeric_limits<double>::quiet_NaN()
            : static_cast<double>(absl::ToUnixSeconds(expiry.time));
    builder->Add(seconds, {{"file", expiry.file}});
  }
}

}  // namespace agg
