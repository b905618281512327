// Plain Adasum of every tensor, split from its report so that several threads
// can share the first and one adds up the second in a fixed order.
#include "server/combine/orthogonality.h"

#include "server/combine/gram_matrix.h"
#include "server/combine/gram_stats.h"
#include "server/combine/rule_table.h"

namespace agg {

void SolvePlainAdasum(const CompactedRound& round, size_t begin,
                      absl::Span<AdasumResult> results) {
  AdasumSolver solver;
  std::vector<double> weights(round.num_rows());
  for (size_t i = 0; i < results.size(); ++i) {
    results[i] = solver.Solve(round.tensors[begin + i], AdasumVariant::kPlain,
                              absl::MakeSpan(weights));
  }
}

void ReportOrthogonality(const RuleOptions& rule, const CompactedRound& round,
                         absl::Span<const AdasumResult> results,
                         Decision* decision) {
  if (!decision->lacks_orthogonality) return;
  decision->lacks_orthogonality = false;
  const bool has_kappa =
      decision->per_tensor && rule.rule->Has(kMeasuresCancellation);
  // In the order of the tensors, whoever solved them: the sum has the same bits
  // for any number of threads.
  double sum = 0.0;
  for (size_t t = 0; t < round.tensors.size(); ++t) {
    const AdasumResult& adasum = results[t];
    SegmentReport& report = decision->tensors[t];
    report.orthogonality =
        Orthogonality(adasum.norm_squared, round.tensors[t].Trace());
    if (!has_kappa) report.kappa = adasum.kappa;
    sum += adasum.norm_squared;
  }
  decision->orthogonality = Orthogonality(sum, round.total.Trace());
}

}  // namespace agg
