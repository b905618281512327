// A segment is a tensor under the scope per_tensor, and the sum of all
// tensors under the scope global.
#include "server/combine/rule_runner.h"

#include <utility>

#include "absl/types/span.h"
#include "server/combine/rule_table.h"

namespace agg {

RuleRunner::RuleRunner(const RuleOptions& options, const CompactedRound& round,
                       std::vector<RuleState>* states)
    : options_(options),
      round_(round),
      per_tensor_(options.scope == Scope::kPerTensor),
      rule_(options.rule->make()),
      states_(*states) {
  states_.resize(options.rule->Has(kKeepsState) ? num_segments() : 0);
}

size_t RuleRunner::num_segments() const {
  return per_tensor_ ? round_.tensors.size() : 1;
}

const GramMatrix& RuleRunner::gram(size_t segment) const {
  return per_tensor_ ? round_.tensors[segment] : round_.total;
}

RuleResult RuleRunner::Run(size_t segment,
                           std::vector<std::vector<double>>* weights) {
  RuleState none;
  RuleState* const state = states_.empty() ? &none : &states_[segment];
  const RuleInput input{gram(segment), round_.examples, options_.adacons,
                        options_.krum, options_.geometric_median};
  std::vector<double> coefficients(round_.num_rows());
  const RuleResult result =
      rule_->Combine(input, state, absl::MakeSpan(coefficients));
  weights->push_back(std::move(coefficients));
  return result;
}

bool RuleRunner::NeedsCompensated(size_t segment,
                                  const RuleResult& result) const {
  return options_.rule->Has(kMeasuresCancellation) &&
         result.kappa > options_.kappa_limit && !gram(segment).compensated();
}

}  // namespace agg
