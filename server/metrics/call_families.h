// The series of gRPC calls.
#ifndef AGG_SERVER_METRICS_CALL_FAMILIES_H_
#define AGG_SERVER_METRICS_CALL_FAMILIES_H_

#include <vector>

#include "server/base/call_counts.h"
#include "server/base/denial_counts.h"
#include "server/metrics/certificate_expiry.h"
#include "server/metrics/family_builder.h"

namespace agg {

// Adds the families under "Calls" of README.md.
void AddCallFamilies(const std::vector<CallCount>& counts,
                     FamilyBuilder* builder);
// Adds the families of calls that were refused because of who made them; null:
// none were.
void AddDenialFamilies(const DenialCounts* counts, FamilyBuilder* builder);

// Adds the families of TLS certificates.
void AddCertificateFamilies(const std::vector<CertificateExpiry>& expiries,
                            FamilyBuilder* builder);

}  // namespace agg

#endif  // AGG_SERVER_METRICS_CALL_FAMILIES_H_
