// The order of a decision: exclude rows, combine, clip, scale the step.
// RuleRunner runs a rule on each segment, and orthogonality is reported last.
// What the rules, the outlier test and the step scales compute is in files of
// their own.
#include "server/combine/decision.h"

#include <cfloat>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "server/combine/adasum.h"
#include "server/combine/combination_rule.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/outliers.h"
#include "server/combine/rule_table.h"
#include "server/combine/step_scale.h"

namespace agg {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool IsPerTensor(const RuleOptions& rule) {
  return rule.scope == Scope::kPerTensor;
}

// The applied rule on a round's kept rows, segment by segment.
struct Combination {
  std::vector<std::vector<double>> weights;  // per segment, over kept rows
  std::vector<double> norms_squared;         // per segment
  std::vector<int> needs_compensated;        // tensors
};

// Each tensor as a segment of its own.
void CombineTensors(RuleRunner* runner, Decision* decision,
                    Combination* combination) {
  const Rule& rule = runner->rule();
  for (size_t t = 0; t < runner->num_segments(); ++t) {
    const GramMatrix& gram = runner->gram(t);
    const RuleResult result = runner->Run(t, &combination->weights);
    combination->norms_squared.push_back(result.norm_squared);
    SegmentReport& report = decision->tensors[t];
    if (rule.Has(kMeasuresCancellation)) {
      report.kappa = result.kappa;
      report.compensated = gram.compensated();
    }
    report.adacons_fallback = result.fell_back && gram.Trace() > 0.0;
    if (runner->NeedsCompensated(t, result)) {
      combination->needs_compensated.push_back(static_cast<int>(t));
    }
    decision->compensated |= report.compensated;
    decision->adacons_fallback |= report.adacons_fallback;
    decision->of_unit_rows |= result.of_unit_rows;
    decision->short_of_rows |= result.short_of_rows;
  }
}

// All tensors as one segment.
void CombineGlobally(RuleRunner* runner, Decision* decision,
                     Combination* combination) {
  const Rule& rule = runner->rule();
  const RuleResult result = runner->Run(0, &combination->weights);
  combination->norms_squared.push_back(result.norm_squared);
  if (runner->NeedsCompensated(0, result)) {
    for (size_t t = 0; t < decision->tensors.size(); ++t) {
      combination->needs_compensated.push_back(static_cast<int>(t));
    }
  }
  decision->adacons_fallback = result.fell_back;
  decision->compensated =
      rule.Has(kMeasuresCancellation) && runner->gram(0).compensated();
  decision->of_unit_rows = result.of_unit_rows;
  decision->short_of_rows = result.short_of_rows;
  for (SegmentReport& report : decision->tensors) {
    report.compensated = decision->compensated;
    report.adacons_fallback = result.fell_back;
  }
}

// Plain Adasum's numbers of each tensor, where the applied rule has just
// computed them: a second recursion would double the cost.
void ReportOwnOrthogonality(const RuleOptions& rule,
                            const CompactedRound& round,
                            const Combination& combination,
                            Decision* decision) {
  std::vector<AdasumResult> results(round.tensors.size());
  for (size_t t = 0; t < results.size(); ++t) {
    results[t].norm_squared = combination.norms_squared[t];
  }
  ReportOrthogonality(rule, round, results, decision);
}

// Why the fallback of an external rule runs; "": it does not.
std::string WhyNoAnswer(const RuleOptions& rule, const CompactedRound& round) {
  if (!rule.rule->Has(kIsExternal) || AnswerTo(rule, round) != nullptr) {
    return "";
  }
  for (const ExternalAnswer& answer : round.external) {
    if (answer.name == rule.external.name) return answer.missing;
  }
  return "it was not asked";
}

// Fills the report's parts of *decision and advances the rule's state in *next.
Combination CombineRows(const RuleOptions& rule, const CompactedRound& round,
                        CombineState* next, Decision* decision) {
  Combination combination;
  RuleRunner runner(rule, round, &next->rule);
  if (IsPerTensor(rule)) {
    CombineTensors(&runner, decision, &combination);
  } else {
    CombineGlobally(&runner, decision, &combination);
  }
  decision->external_fallback = WhyNoAnswer(rule, round);
  decision->lacks_orthogonality = true;
  if (IsPerTensor(rule) && runner.rule().Has(kIsPlainAdasum)) {
    ReportOwnOrthogonality(rule, round, combination, decision);
  }
  decision->gradient_diversity = GradientDiversity(round.total);
  return combination;
}

double CombinedNorm(const Combination& combination) {
  double norm_squared = 0.0;
  for (const double segment : combination.norms_squared) {
    norm_squared += segment;
  }
  return std::sqrt(norm_squared);
}

// Coefficients of the rows as pushed: clipped, loss scale folded in, 0 for
// excluded rows. False if one is not finite.
bool SetCoefficients(const CompactedRound& round,
                     const Combination& combination, Decision* decision) {
  decision->coefficients.reserve(combination.weights.size());
  for (const std::vector<double>& weights : combination.weights) {
    std::vector<double> coefficients(round.num_committed, 0.0);
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
                       int64_t version, size_t num_tensors) {
  Decision decision;
  decision.per_tensor = IsPerTensor(options.rule);
  const double t = MeasuresGain(options.step_scale.kind)
                       ? std::floor(state.step_scale.tau)
                       : static_cast<double>(version);
  decision.scheduled_learning_rate = ScheduledLearningRate(options.schedule, t);
  decision.learning_rate = decision.scheduled_learning_rate;
  decision.tau = state.step_scale.tau;
  decision.sigma2 = decision.mu2 = kNan;
  decision.sigma2_mean = decision.mu2_mean = kNan;
  decision.orthogonality = decision.gradient_diversity = kNan;
  SegmentReport undefined;
  undefined.orthogonality = undefined.row_norm = undefined.kappa = kNan;
  decision.tensors.assign(num_tensors, undefined);
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

// The combined norm and its clipping; why the round cannot be applied, or "".
std::string ClipNorm(const CombineOptions& options,
                     const Combination& combination, Decision* decision) {
  const double norm = CombinedNorm(combination);
  if (!std::isfinite(norm)) return "the combined norm is not finite";
  decision->clip_factor = ClipFactor(norm, options.clip_norm);
  decision->combined_norm = norm * decision->clip_factor;
  if (decision->combined_norm <= FLT_MAX) return "";
  return absl::StrFormat("the combined norm %g does not fit float32",
                         decision->combined_norm);
}

void ApplyStepScale(const CombineOptions& options, const CompactedRound& round,
                    CombineState* next, Decision* decision) {
  const StepScaleOptions& scale = options.step_scale;
  std::vector<GramMatrix> groups;
  if (scale.gain_scope == GainScope::kPerGroup) {
    groups = SumGroups(round, scale.groups.size());
  }
  const StepScaleResult result = AdvanceStepScale(
      scale, round.rows, round.total, &next->step_scale, groups);
  decision->sigma2 = result.sigma2;
  decision->mu2 = result.mu2;
  decision->sigma2_mean = result.sigma2_mean;
  decision->mu2_mean = result.mu2_mean;
  decision->small_sum_ranks = result.small_sum_ranks;
  decision->unused_sum_ranks = result.unused_sum_ranks;
  decision->gain = result.gain;
  decision->next_gain = result.next_gain;
  const ExternalAnswer* const answer = AnswerTo(options.rule, round);
  const double asked = answer == nullptr ? 1.0 : answer->step_scale;
  decision->step_factor = result.step_factor * asked;
  decision->learning_rate =
      decision->scheduled_learning_rate * decision->step_factor;
  decision->group_gains = result.group_gains;
  for (const double factor : result.group_factors) {
    decision->group_rates.push_back(decision->scheduled_learning_rate *
                                    (factor * asked));
  }
  if (!result.group_gains.empty()) {
    for (size_t t = 0; t < decision->tensors.size(); ++t) {
      decision->tensors[t].gain = result.group_gains[round.group_of_tensor[t]];
    }
  }
  decision->tau = next->step_scale.tau;
}

// The largest of the rates that tensors would be stepped by.
double LargestRate(const Decision& decision) {
  double largest = decision.learning_rate;
  for (const double rate : decision.group_rates) {
    largest = rate <= largest ? largest : rate;
  }
  return largest;
}

bool IsFinished(const CombineOptions& options, double tau) {
  return options.scale_invariant_iterations > 0.0 &&
         tau >= options.scale_invariant_iterations;
}

}  // namespace

Decision DecideCoefficients(const CombineOptions& options,
                            const CombineState& state, int64_t version,
                            const CompactedRound& round) {
  Decision decision = StartDecision(options, state, version, round.num_tensors);
  decision.finished = IsFinished(options, decision.tau);
  if (round.num_committed == 0) return Skip("no rows", std::move(decision));
  decision.excluded_ranks = round.excluded_ranks;
  decision.outliers = round.outliers;
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

  const std::string norm_error = ClipNorm(options, combination, &decision);
  if (!norm_error.empty()) return Skip(norm_error, std::move(decision));
  if (!SetCoefficients(round, combination, &decision)) {
    return Skip("a coefficient is not finite", std::move(decision));
  }
  ApplyStepScale(options, round, &next, &decision);
  const double rate = LargestRate(decision);
  if (!(rate <= FLT_MAX)) {
    decision.tau = state.step_scale.tau;  // the round does not count
    return Skip(
        absl::StrFormat("the learning rate %g does not fit float32", rate),
        std::move(decision));
  }
  for (const std::vector<int>& group : EqualRows(round.total)) {
    std::vector<int32_t>& ranks = decision.equal_ranks.emplace_back();
    for (const int row : group) ranks.push_back(round.rows[row].rank);
  }
  decision.finished = IsFinished(options, decision.tau);
  decision.next_state = std::move(next);
  return decision;
}

Decision Decide(const CombineOptions& options, const CombineState& state,
                const RoundInput& input) {
  CompactedRound round = CompactRound(input.rows, input.tensors);
  round.group_of_tensor = input.group_of_tensor;
  JudgeOutliers(options.outliers, &round);
  Decision decision = DecideCoefficients(options, state, input.version, round);
  std::vector<AdasumResult> results(
      decision.lacks_orthogonality ? round.tensors.size() : 0);
  SolvePlainAdasum(round, 0, absl::MakeSpan(results));
  ReportOrthogonality(options.rule, round, absl::MakeConstSpan(results),
                      &decision);
  return decision;
}

const ExternalAnswer* AnswerTo(const RuleOptions& options,
                               const CompactedRound& round) {
  if (!options.rule->Has(kIsExternal)) return nullptr;
  for (const ExternalAnswer& answer : round.external) {
    if (answer.name == options.external.name && answer.missing.empty()) {
      return &answer;
    }
  }
  return nullptr;
}

RuleRunner::RuleRunner(const RuleOptions& options, const CompactedRound& round,
                       std::vector<RuleState>* states)
    : options_(options),
      round_(round),
      per_tensor_(options.scope == Scope::kPerTensor),
      answer_(AnswerTo(options, round)),
      line_(options.rule->Has(kIsExternal) && answer_ == nullptr
                ? *options.external.fallback
                : *options.rule),
      rule_(line_.make()),
      states_(*states) {
  const bool keeps =
      options.rule->Has(kKeepsState) || options.rule->Has(kIsExternal);
  states_.resize(keeps ? num_segments() : 0);
}

size_t RuleRunner::num_segments() const {
  return per_tensor_ ? round_.tensors.size() : 1;
}

const GramMatrix& RuleRunner::gram(size_t segment) const {
  return per_tensor_ ? round_.tensors[segment] : round_.total;
}

RuleResult RuleRunner::Run(size_t segment,
                           std::vector<std::vector<double>>* weights) {
  // A fallback has no state, and leaves that of the external rule as it was.
  RuleState none;
  const bool is_fallback = &line_ != options_.rule;
  RuleState* const state =
      states_.empty() || is_fallback ? &none : &states_[segment];
  const RuleInput input{
      gram(segment),
      round_.examples,
      options_.adacons,
      options_.krum,
      options_.geometric_median,
      answer_ == nullptr ? nullptr : &answer_->segments[segment]};
  std::vector<double> coefficients(round_.num_rows());
  const RuleResult result =
      rule_->Combine(input, state, absl::MakeSpan(coefficients));
  weights->push_back(std::move(coefficients));
  return result;
}

bool RuleRunner::NeedsCompensated(size_t segment,
                                  const RuleResult& result) const {
  return line_.Has(kMeasuresCancellation) &&
         result.kappa > options_.kappa_limit && !gram(segment).compensated();
}

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
  const Rule& ran = decision->external_fallback.empty()
                        ? *rule.rule
                        : *rule.external.fallback;
  const bool has_kappa = decision->per_tensor && ran.Has(kMeasuresCancellation);
  // In the order of the tensors, whoever solved them: the sum has the same bits
  // for any number of threads.
  double sum = 0.0;
  for (size_t t = 0; t < round.tensors.size(); ++t) {
    const AdasumResult& adasum = results[t];
    SegmentReport& report = decision->tensors[t];
    const double trace = round.tensors[t].Trace();
    report.orthogonality = Orthogonality(adasum.norm_squared, trace);
    report.row_norm = std::sqrt(trace / round.num_rows());
    if (!has_kappa) report.kappa = adasum.kappa;
    sum += adasum.norm_squared;
  }
  decision->orthogonality = Orthogonality(sum, round.total.Trace());
}

}  // namespace agg
