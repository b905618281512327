#include "server/combine/decision.h"

#include <cfloat>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "server/combine/adasum.h"
#include "server/combine/clipping.h"
#include "server/combine/combination_rule.h"
#include "server/combine/compacted_round.h"
#include "server/combine/gram_stats.h"
#include "server/combine/schedule.h"

namespace agg {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool IsPerTensor(const RuleOptions& rule) {
  return rule.scope == Scope::kPerTensor;
}

// The applied rule on a round's kept rows, segment by segment.
struct Combination {
  std::vector<std::vector<double>> weights;  // per segment, over kept rows
  double norm_squared = 0.0;                 // over all segments
  std::vector<int> needs_compensated;        // tensors
};

bool NeedsCompensated(const RuleOptions& rule, const GramMatrix& gram,
                      double kappa) {
  return IsAdasum(rule.rule) && kappa > rule.kappa_limit && !gram.compensated();
}

// Tensor `t` under per_tensor scope. `plain` is its plain Adasum and
// `adasum_weights` that one's coefficients.
void CombineTensor(const RuleOptions& rule, const CompactedRound& round, int t,
                   const AdasumResult& plain,
                   absl::Span<const double> adasum_weights,
                   AdaconsState* adacons, AdasumSolver* solver,
                   SegmentReport* report, Combination* combination) {
  const GramMatrix& gram = *round.tensors[t];
  std::vector<double> weights(adasum_weights.begin(), adasum_weights.end());
  RuleResult result{plain.norm_squared, plain.kappa, false};
  if (rule.rule != Rule::kAdasum) {
    result = ApplyRule(rule, gram, round.examples, adacons, solver,
                       absl::MakeSpan(weights));
  }
  if (IsAdasum(rule.rule)) {
    report->kappa = result.kappa;
    report->compensated = gram.compensated();
  }
  report->adacons_fallback = result.adacons_fallback && gram.Trace() > 0.0;
  if (NeedsCompensated(rule, gram, result.kappa)) {
    combination->needs_compensated.push_back(t);
  }
  combination->norm_squared += result.norm_squared;
  combination->weights.push_back(std::move(weights));
}

// All tensors as one segment.
void CombineGlobally(const RuleOptions& rule, const CompactedRound& round,
                     AdaconsState* adacons, AdasumSolver* solver,
                     Decision* decision, Combination* combination) {
  std::vector<double> weights(round.num_rows());
  const RuleResult result = ApplyRule(rule, round.total, round.examples,
                                      adacons, solver, absl::MakeSpan(weights));
  if (NeedsCompensated(rule, round.total, result.kappa)) {
    for (size_t t = 0; t < round.tensors.size(); ++t) {
      combination->needs_compensated.push_back(static_cast<int>(t));
    }
  }
  const bool compensated = IsAdasum(rule.rule) && round.total.compensated();
  decision->adacons_fallback = result.adacons_fallback;
  decision->compensated = compensated;
  for (SegmentReport& report : decision->tensors) {
    report.compensated = compensated;
    report.adacons_fallback = result.adacons_fallback;
  }
  combination->norm_squared = result.norm_squared;
  combination->weights.push_back(std::move(weights));
}

// Fills the report's parts of *decision and advances AdaCons in *next.
Combination CombineRows(const RuleOptions& rule, const CompactedRound& round,
                        CombineState* next, Decision* decision) {
  const size_t num_tensors = round.tensors.size();
  const bool per_tensor = IsPerTensor(rule);
  if (rule.rule == Rule::kAdacons) {
    next->adacons.resize(per_tensor ? num_tensors : 1);
  }
  AdaconsState none;
  const auto adacons = [&](size_t segment) {
    return rule.rule == Rule::kAdacons ? &next->adacons[segment] : &none;
  };
  Combination combination;
  AdasumSolver solver;
  std::vector<double> adasum_weights(round.num_rows());
  double adasum_norm_squared = 0.0;
  for (size_t t = 0; t < num_tensors; ++t) {
    const AdasumResult adasum =
        solver.Solve(*round.tensors[t], AdasumVariant::kPlain,
                     absl::MakeSpan(adasum_weights));
    SegmentReport& report = decision->tensors[t];
    report.orthogonality =
        Orthogonality(adasum.norm_squared, round.tensors[t]->Trace());
    report.kappa = adasum.kappa;
    adasum_norm_squared += adasum.norm_squared;
    if (!per_tensor) continue;
    CombineTensor(rule, round, static_cast<int>(t), adasum, adasum_weights,
                  adacons(t), &solver, &report, &combination);
    decision->compensated |= report.compensated;
    decision->adacons_fallback |= report.adacons_fallback;
  }
  decision->orthogonality =
      Orthogonality(adasum_norm_squared, round.total.Trace());
  decision->gradient_diversity = GradientDiversity(round.total);
  if (!per_tensor) {
    CombineGlobally(rule, round, adacons(0), &solver, decision, &combination);
  }
  return combination;
}

// Coefficients of the rows as pushed: clipped, loss scale folded in, 0 for
// excluded rows. False if one is not finite.
bool SetCoefficients(const CompactedRound& round, size_t num_rows,
                     const Combination& combination, Decision* decision) {
  decision->coefficients.reserve(combination.weights.size());
  for (const std::vector<double>& weights : combination.weights) {
    std::vector<double> coefficients(num_rows, 0.0);
    for (int i = 0; i < round.num_rows(); ++i) {
      const double value = weights[i] * decision->clip_factor * round.scales[i];
      if (!std::isfinite(value)) return false;
      coefficients[round.kept[i]] = value;
    }
    decision->coefficients.push_back(std::move(coefficients));
  }
  return true;
}

// What holds before anything is known of the rows, and for a skipped round.
Decision StartDecision(const CombineOptions& options, const CombineState& state,
                       const RoundInput& input) {
  Decision decision;
  decision.per_tensor = IsPerTensor(options.rule);
  const double t = MeasuresGain(options.step_scale.kind)
                       ? std::floor(state.step_scale.tau)
                       : static_cast<double>(input.version);
  decision.scheduled_learning_rate = ScheduledLearningRate(options.schedule, t);
  decision.learning_rate = decision.scheduled_learning_rate;
  decision.tau = state.step_scale.tau;
  decision.sigma2 = decision.mu2 = kNan;
  decision.sigma2_mean = decision.mu2_mean = kNan;
  decision.orthogonality = decision.gradient_diversity = kNan;
  SegmentReport undefined;
  undefined.orthogonality = undefined.kappa = kNan;
  decision.tensors.assign(input.tensors.size(), undefined);
  decision.next_state = state;
  return decision;
}

Decision Skip(std::string reason, Decision decision) {
  decision.kind = DecisionKind::kSkip;
  decision.skip_reason = std::move(reason);
  decision.coefficients.clear();
  decision.clip_factor = 1.0;
  decision.combined_norm = 0.0;
  return decision;
}

void ApplyStepScale(const CombineOptions& options, const CompactedRound& round,
                    CombineState* next, Decision* decision) {
  const StepScaleResult result = AdvanceStepScale(
      options.step_scale, round.rows, round.total, &next->step_scale);
  decision->sigma2 = result.sigma2;
  decision->mu2 = result.mu2;
  decision->sigma2_mean = result.sigma2_mean;
  decision->mu2_mean = result.mu2_mean;
  decision->gain = result.gain;
  decision->step_factor = result.step_factor;
  decision->learning_rate =
      decision->scheduled_learning_rate * result.step_factor;
  decision->tau = next->step_scale.tau;
}

bool IsFinished(const CombineOptions& options, double tau) {
  return options.scale_invariant_iterations > 0.0 &&
         tau >= options.scale_invariant_iterations;
}

}  // namespace

Decision Decide(const CombineOptions& options, const CombineState& state,
                const RoundInput& input) {
  Decision decision = StartDecision(options, state, input);
  decision.finished = IsFinished(options, decision.tau);
  if (input.rows.empty()) return Skip("no rows", std::move(decision));
  const CompactedRound round = CompactRound(input.rows, input.tensors);
  decision.excluded_ranks = round.excluded_ranks;
  if (round.rows.empty()) {
    return Skip("every row has a non-finite value", std::move(decision));
  }

  CombineState next = state;
  const Combination combination =
      CombineRows(options.rule, round, &next, &decision);
  if (!combination.needs_compensated.empty()) {
    decision.kind = DecisionKind::kNeedsCompensated;
    decision.compensate_tensors = combination.needs_compensated;
    return decision;
  }

  const double norm = std::sqrt(combination.norm_squared);
  if (!std::isfinite(norm)) {
    return Skip("the combined norm is not finite", std::move(decision));
  }
  decision.clip_factor = ClipFactor(norm, options.clip_norm);
  decision.combined_norm = norm * decision.clip_factor;
  if (decision.combined_norm > FLT_MAX) {
    return Skip(absl::StrFormat("the combined norm %g is no float32",
                                decision.combined_norm),
                std::move(decision));
  }
  if (!SetCoefficients(round, input.rows.size(), combination, &decision)) {
    return Skip("a coefficient is not finite", std::move(decision));
  }
  ApplyStepScale(options, round, &next, &decision);
  decision.finished = IsFinished(options, decision.tau);
  decision.next_state = std::move(next);
  return decision;
}

}  // namespace agg
