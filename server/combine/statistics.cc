// Everything here is computed from a round's compacted rows and its decision,
// on whatever thread has time for it.
#include "server/combine/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/types/span.h"
#include "server/combine/combination_rule.h"
#include "server/combine/decision.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/outliers.h"
#include "server/combine/step_scale.h"

namespace agg {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Coefficients of the gradients (loss scale removed) over kept rows, one
// vector if global, else one per tensor.
using SegmentWeights = std::vector<std::vector<double>>;

SegmentWeights AppliedWeights(const CompactedRound& round,
                              const Decision& decision) {
  SegmentWeights weights;
  for (const std::vector<double>& coefficients : decision.coefficients) {
    std::vector<double> kept(round.num_rows());
    for (int i = 0; i < round.num_rows(); ++i) {
      kept[i] = coefficients[round.kept[i]] * round.rows[i].loss_scale;
    }
    weights.push_back(std::move(kept));
  }
  return weights;
}

// <u A, w A> over all tensors, whatever the two scopes.
double InnerProduct(const CompactedRound& round, const SegmentWeights& u,
                    bool u_per_tensor, const SegmentWeights& w,
                    bool w_per_tensor) {
  if (!u_per_tensor && !w_per_tensor) {
    return BilinearForm(round.total, u[0], w[0]);
  }
  double sum = 0.0;
  for (size_t t = 0; t < round.tensors.size(); ++t) {
    sum += BilinearForm(round.tensors[t], u[u_per_tensor ? t : 0],
                        w[w_per_tensor ? t : 0]);
  }
  return sum;
}

// A shadow rule's coefficients; `norm_squared` of its result over all tensors.
SegmentWeights ShadowWeights(const RuleOptions& rule,
                             const CompactedRound& round,
                             std::vector<RuleState>* states,
                             double* norm_squared) {
  RuleRunner runner(rule, round, states);
  SegmentWeights weights;
  *norm_squared = 0.0;
  for (size_t s = 0; s < runner.num_segments(); ++s) {
    *norm_squared += runner.Run(s, &weights).norm_squared;
  }
  return weights;
}

ShadowReport RunShadow(const RuleOptions& rule, const CompactedRound& round,
                       const Decision& decision, const SegmentWeights& applied,
                       std::vector<RuleState>* states) {
  ShadowReport report;
  report.rule = rule.rule;
  report.scope = rule.scope;
  // Numbers of its fallback would be taken for its own.
  if (rule.rule->Has(kIsExternal) && AnswerTo(rule, round) == nullptr) {
    report.norm = report.cosine = kNan;
    return report;
  }
  double norm_squared = 0.0;
  const SegmentWeights weights =
      ShadowWeights(rule, round, states, &norm_squared);
  const bool per_tensor = rule.scope == Scope::kPerTensor;
  report.norm = std::sqrt(norm_squared);
  const double dot =
      InnerProduct(round, applied, decision.per_tensor, weights, per_tensor);
  const double norms = report.norm * decision.combined_norm;
  report.cosine = norms > 0.0 ? std::clamp(dot / norms, -1.0, 1.0) : kNan;
  if (!per_tensor) {
    report.coefficients.assign(round.num_committed, 0.0);
    for (int i = 0; i < round.num_rows(); ++i) {
      report.coefficients[round.kept[i]] = weights[0][i];
    }
  }
  return report;
}

void SetRowStatistics(const CompactedRound& round, size_t num_rows,
                      RoundStatistics* statistics) {
  statistics->row_norms.assign(num_rows, kNan);
  statistics->mean_cosines.assign(num_rows, kNan);
  statistics->mean_pairwise_cosine = kNan;
  statistics->min_pairwise_cosine = kNan;
  statistics->effective_rank = kNan;
  if (round.num_rows() == 0) return;
  const PairwiseCosines cosines = ComputeCosines(round.total);
  for (int i = 0; i < round.num_rows(); ++i) {
    const int row = round.kept[i];
    statistics->row_norms[row] = std::sqrt(round.total(i, i));
    statistics->mean_cosines[row] = cosines.row_means[i];
  }
  statistics->mean_pairwise_cosine = cosines.mean;
  statistics->min_pairwise_cosine = cosines.min;
  statistics->effective_rank = EffectiveRank(round.total);
  // Theirs is known though they are left out, and people will ask for it.
  for (const OutlierRow& row : round.outliers.rows) {
    statistics->row_norms[row.row] = row.norm;
  }
}

// Where a committed row is among the kept ones; -1: it is not.
std::vector<int> KeptIndices(const CompactedRound& round) {
  std::vector<int> indices(round.num_committed, -1);
  for (int i = 0; i < round.num_rows(); ++i) indices[round.kept[i]] = i;
  return indices;
}

void SetMatrices(const CompactedRound& round, size_t num_rows,
                 RoundStatistics* statistics) {
  const size_t side = std::min<size_t>(num_rows, kMaxMatrixRows);
  const std::vector<int> kept_index = KeptIndices(round);
  for (size_t i = 0; i < side; ++i) {
    for (size_t j = i; j < side; ++j) {
      const int a = kept_index[i];
      const int b = kept_index[j];
      const bool known = a >= 0 && b >= 0;
      statistics->gram.push_back(known ? round.total(a, b) : kNan);
      const double norms =
          known ? std::sqrt(round.total(a, a)) * std::sqrt(round.total(b, b))
                : 0.0;
      statistics->cosines.push_back(
          norms > 0.0 ? std::clamp(round.total(a, b) / norms, -1.0, 1.0)
                      : kNan);
    }
  }
}

// B_simple = b sigma2/mu2, b = examples of one baseline batch.
double NoiseScale(const CombineOptions& options, const CompactedRound& round,
                  const Decision& decision) {
  if (!(decision.mu2_mean > 0.0)) return kNan;
  double examples = 0.0;
  for (const double row : round.examples) examples += row;
  const double units =
      EstimateNoise(options.step_scale, round.rows, round.total).scale;
  return examples / units * (decision.sigma2_mean / decision.mu2_mean);
}

// The tensors' reports hold the applied rule's own kappa only under per_tensor
// scope. That of its one global segment is not kept by a decision: the rule
// runs again, on the state before the round.
double MaxKappa(const RuleOptions& rule, const CompactedRound& round,
                const std::vector<RuleState>& rule_before,
                const Decision& decision) {
  double max = kNan;
  for (const SegmentReport& tensor : decision.tensors) {
    max = std::fmax(max, tensor.kappa);
  }
  std::vector<RuleState> before = rule_before;
  RuleRunner runner(rule, round, &before);
  if (decision.per_tensor || !runner.rule().Has(kMeasuresCancellation)) {
    return max;
  }
  SegmentWeights weights;
  const RuleResult applied = runner.Run(0, &weights);
  return std::fmax(max, applied.kappa);
}

void SetCoefficientStatistics(const CompactedRound& round, size_t num_rows,
                              const SegmentWeights& applied,
                              RoundStatistics* statistics) {
  statistics->row_coefficients.assign(num_rows, 0.0);
  statistics->coefficient_sum = applied.empty() ? kNan : 0.0;
  const double num_segments = static_cast<double>(applied.size());
  for (const std::vector<double>& weights : applied) {
    for (int i = 0; i < round.num_rows(); ++i) {
      const double share = weights[i] / num_segments;
      statistics->row_coefficients[round.kept[i]] += share;
      statistics->coefficient_sum += share;
    }
  }
}

}  // namespace

RoundStatistics ComputeStatistics(
    const CombineOptions& options, const std::vector<RuleState>& rule_before,
    const CompactedRound& round, const Decision& decision,
    std::vector<std::vector<RuleState>>* shadow_rules) {
  const size_t num_rows = round.num_committed;
  RoundStatistics statistics;
  SetRowStatistics(round, num_rows, &statistics);
  SetMatrices(round, num_rows, &statistics);
  statistics.max_kappa = kNan;
  statistics.gradient_noise_scale = kNan;
  shadow_rules->resize(options.shadow_rules.size());
  const bool applied = decision.kind == DecisionKind::kApply;
  const SegmentWeights weights =
      applied ? AppliedWeights(round, decision) : SegmentWeights();
  SetCoefficientStatistics(round, num_rows, weights, &statistics);
  if (!applied) return statistics;

  statistics.max_kappa = MaxKappa(options.rule, round, rule_before, decision);
  statistics.gradient_noise_scale = NoiseScale(options, round, decision);
  for (size_t s = 0; s < options.shadow_rules.size(); ++s) {
    statistics.shadows.push_back(RunShadow(options.shadow_rules[s], round,
                                           decision, weights,
                                           &(*shadow_rules)[s]));
  }
  return statistics;
}

std::vector<double> TensorGrams(const CompactedRound& round) {
  const auto entries = [&round](size_t side) {
    return round.tensors.size() * side * (side + 1) / 2;
  };
  size_t side = std::min<size_t>(round.num_committed, kMaxMatrixRows);
  while (side > 0 && entries(side) > kMaxTensorGramEntries) --side;
  const std::vector<int> kept_index = KeptIndices(round);
  std::vector<double> grams;
  grams.reserve(entries(side));
  for (const GramMatrix& tensor : round.tensors) {
    for (size_t i = 0; i < side; ++i) {
      for (size_t j = i; j < side; ++j) {
        const int a = kept_index[i];
        const int b = kept_index[j];
        grams.push_back(a >= 0 && b >= 0 ? tensor(a, b) : kNan);
      }
    }
  }
  return grams;
}

RoundStatistics ComputeStatistics(const CombineOptions& options,
                                  const CombineState& state,
                                  const RoundInput& input,
                                  const Decision& decision,
                                  CombineState* next_state) {
  next_state->shadow_rules = state.shadow_rules;
  CompactedRound round = CompactRound(input.rows, input.tensors);
  JudgeOutliers(options.outliers, &round);
  return ComputeStatistics(options, state.rule, round, decision,
                           &next_state->shadow_rules);
}

}  // namespace agg
