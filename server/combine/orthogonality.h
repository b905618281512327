// Orthogonality and kappa of each tensor: what plain Adasum would make of it,
// whatever the rule. Apart from decision.h, since no coefficient depends on it:
// it may be computed while the shards already update, by several threads.
#ifndef AGG_SERVER_COMBINE_ORTHOGONALITY_H_
#define AGG_SERVER_COMBINE_ORTHOGONALITY_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "server/combine/adasum.h"
#include "server/combine/compacted_round.h"
#include "server/combine/decision.h"
#include "server/combine/options.h"

namespace agg {

// Plain Adasum of the tensors `begin` to `begin` + results.size() - 1.
// O(P^2) each. Thread-safe for different results.
void SolvePlainAdasum(const CompactedRound& round, size_t begin,
                      absl::Span<AdasumResult> results);

// Writes what the results of all tensors say into *decision, which is then as
// Decide makes it. Does nothing unless decision->lacks_orthogonality.
// REQUIRES: `round` and `rule` are those of the decision.
void ReportOrthogonality(const RuleOptions& rule, const CompactedRound& round,
                         absl::Span<const AdasumResult> results,
                         Decision* decision);

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_ORTHOGONALITY_H_
