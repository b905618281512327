#include "server/metrics/round_families.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "server/metrics/family_builder.h"
#include "server/metrics/metrics_options.h"
#include "server/metrics/round_state.h"

namespace agg {
namespace {

struct ScalarGauge {
  const char* name;
  const char* help;
  double RoundGauges::*value;
};

constexpr ScalarGauge kScalarGauges[] = {
    {"aggserver_round_rows",
     "Gradients in the last applied round, excluded ones included.",
     &RoundGauges::num_rows},
    {"aggserver_gradient_diversity",
     "Sum of squared gradient norms over the squared norm of their sum.",
     &RoundGauges::gradient_diversity},
    {"aggserver_pairwise_cosine_mean",
     "Mean cosine between two workers' gradients.",
     &RoundGauges::mean_pairwise_cosine},
    {"aggserver_pairwise_cosine_min",
     "Least cosine between two workers' gradients.",
     &RoundGauges::min_pairwise_cosine},
    {"aggserver_effective_rank",
     "Independent directions among the gradients, 1 to the number of workers.",
     &RoundGauges::effective_rank},
    {"aggserver_gradient_norm",
     "Norm of the combined gradient over all tensors, after clipping.",
     &RoundGauges::combined_norm},
    {"aggserver_clip_factor",
     "Factor that clipping applied to the combined gradient; 1 is none.",
     &RoundGauges::clip_factor},
    {"aggserver_summed_coefficient",
     "Sum of the combination's coefficients: 1 for a mean, W for a sum of W.",
     &RoundGauges::coefficient_sum},
    {"aggserver_scheduled_learning_rate",
     "Learning rate of the schedule, before the step scale.",
     &RoundGauges::scheduled_learning_rate},
    {"aggserver_step_factor",
     "What the step scale multiplied the scheduled learning rate by.",
     &RoundGauges::step_factor},
    {"aggserver_learning_rate", "Learning rate that was applied.",
     &RoundGauges::learning_rate},
    {"aggserver_gain_ratio",
     "AdaScale's gain: one-worker steps that this round was worth.",
     &RoundGauges::gain},
    {"aggserver_sigma2",
     "Variance of a one-worker gradient, as estimated from this round.",
     &RoundGauges::sigma2},
    {"aggserver_mu2",
     "Squared norm of the true gradient, as estimated from this round.",
     &RoundGauges::mu2},
    {"aggserver_sigma2_average",
     "Moving average of sigma2, which the gain is made of.",
     &RoundGauges::sigma2_mean},
    {"aggserver_mu2_average",
     "Moving average of mu2, which the gain is made of.",
     &RoundGauges::mu2_mean},
    {"aggserver_gradient_noise_scale",
     "Critical batch size in examples: beyond it more workers help little.",
     &RoundGauges::gradient_noise_scale},
};

struct WorkerGauge {
  const char* name;
  const char* help;
  double WorkerGauges::*value;
};

constexpr WorkerGauge kWorkerGauges[] = {
    {"aggserver_worker_coefficient",
     "Weight of a worker's gradient in the combination.",
     &WorkerGauges::coefficient},
    {"aggserver_adacons_coefficient",
     "Weight that AdaCons, applied or shadow, gave a worker's gradient.",
     &WorkerGauges::adacons_coefficient},
    {"aggserver_worker_gradient_norm", "Norm of a worker's gradient.",
     &WorkerGauges::gradient_norm},
    {"aggserver_worker_cosine_mean",
     "Mean cosine of a worker's gradient to the others'.",
     &WorkerGauges::mean_cosine},
    {"aggserver_worker_outlier_score",
     "Deviations of the logarithm of a gradient's norm from the median.",
     &WorkerGauges::outlier_score},
};

void AddTotals(const RoundState& state, FamilyBuilder* builder) {
  builder->BeginCounter("aggserver_rounds_total", "Rounds by outcome.");
  builder->Add(static_cast<double>(state.applied_rounds),
               {{"outcome", "applied"}});
  builder->Add(static_cast<double>(state.skipped_rounds),
               {{"outcome", "skipped"}});
  builder->BeginCounter("aggserver_fallbacks_total",
                        "Rounds in which a rule fell back, by kind.");
  builder->Add(static_cast<double>(state.compensated_rounds),
               {{"kind", "compensated_gram"}});
  builder->Add(static_cast<double>(state.adacons_fallback_rounds),
               {{"kind", "adacons_mean"}});
  builder->Counter("aggserver_examples_total",
                   "Training examples that entered applied rounds.",
                   static_cast<double>(state.examples));
  builder->Counter("aggserver_scale_invariant_iterations_total",
                   "Tau: one-worker steps that the rounds were worth.",
                   state.tau);
  builder->Counter("aggserver_excluded_rows_total",
                   "Gradients left out: not finite, or not on all shards.",
                   static_cast<double>(state.excluded_rows));
}

void AddWorkerTotals(const RoundState& state, FamilyBuilder* builder) {
  builder->BeginCounter("aggserver_worker_excluded_rows_total",
                        "A worker's gradients left out, not being finite.");
  for (size_t i = 0; i < state.excluded_by_rank.size(); ++i) {
    builder->Add(static_cast<double>(state.excluded_by_rank[i]),
                 {{"worker", std::to_string(i)}});
  }
  builder->BeginCounter("aggserver_worker_delay_seconds_total",
                        "How long a worker's commits came after the first "
                        "ones of their rounds.");
  for (size_t i = 0; i < state.delay_seconds_by_rank.size(); ++i) {
    builder->Add(state.delay_seconds_by_rank[i],
                 {{"worker", std::to_string(i)}});
  }
}

void AddPhases(const RoundState& state, FamilyBuilder* builder) {
  builder->BeginHistogram(
      "aggserver_round_duration_seconds",
      "Wall time of a round's phases, as the coordinator saw them.");
  for (size_t i = 0; i < kPhaseNames.size(); ++i) {
    builder->AddHistogram(state.phases[i], {{"phase", kPhaseNames[i]}});
  }
  builder->BeginHistogram("aggserver_round_seconds",
                          "Wall time of whole rounds: all phases.");
  builder->AddHistogram(state.rounds, {});
  builder->Gauge("aggserver_last_round_timestamp_seconds",
                 "Unix time at which the last round ended.",
                 state.last_round_time);
}

// The model's value has tensor="", which to Prometheus is no such label.
void AddPerTensor(const char* name, const char* help, double model,
                  double TensorGauges::*value, const RoundState& state,
                  FamilyBuilder* builder) {
  builder->BeginGauge(name, help);
  builder->Add(model, {{"tensor", ""}});
  const auto& selected = state.selection->tensors;
  const auto& gauges = state.gauges.tensors;
  for (size_t i = 0; i < selected.size(); ++i) {
    builder->Add(i < gauges.size() ? gauges[i].*value : kUndefined,
                 {{"tensor", selected[i].name}});
  }
}

void AddShadows(const MetricsOptions& options, const RoundState& state,
                FamilyBuilder* builder) {
  const auto add = [&](const char* name, const char* help,
                       double ShadowGauges::*value) {
    builder->BeginGauge(name, help);
    for (size_t i = 0; i < options.shadow_rules.size(); ++i) {
      // The index keeps two shadows of one rule apart.
      builder->Add(state.gauges.shadows[i].*value,
                   {{"shadow", std::to_string(i)},
                    {"rule", options.shadow_rules[i].rule},
                    {"scope", options.shadow_rules[i].scope}});
    }
  };
  add("aggserver_shadow_cosine",
      "Cosine of a shadow rule's result to the applied one.",
      &ShadowGauges::cosine);
  add("aggserver_shadow_norm", "Norm of a shadow rule's result.",
      &ShadowGauges::norm);
}

}  // namespace

void AddRoundFamilies(const MetricsOptions& options,
                      const CombinationNames& combination,
                      const RoundState& state, FamilyBuilder* builder) {
  builder->Info("aggserver_combination_info", "What is in effect; always 1.",
                {{"rule", combination.rule},
                 {"scope", combination.scope},
                 {"step_scale", combination.step_scale}});
  AddTotals(state, builder);
  AddWorkerTotals(state, builder);
  AddPhases(state, builder);
  builder->Gauge("aggserver_loss",
                 "Mean training loss that the workers sent, by examples.",
                 state.loss);
  builder->Gauge("aggserver_tensors", "Tensors of the manifest.",
                 static_cast<double>(state.selection->num_tensors));
  AddPerTensor("aggserver_orthogonality",
               "Squared norm of Adasum's result over the sum of squared "
               "gradient norms: 1 is orthogonal, 1/W parallel.",
               state.gauges.orthogonality, &TensorGauges::orthogonality, state,
               builder);
  AddPerTensor("aggserver_adasum_kappa",
               "Cancellation in the Adasum recursion; tensor=\"\" is the "
               "largest of all.",
               state.gauges.max_kappa, &TensorGauges::kappa, state, builder);
  for (const ScalarGauge& gauge : kScalarGauges) {
    builder->Gauge(gauge.name, gauge.help, state.gauges.*gauge.value);
  }
  for (const WorkerGauge& gauge : kWorkerGauges) {
    builder->BeginGauge(gauge.name, gauge.help);
    for (const WorkerGauges& worker : state.gauges.workers) {
      builder->Add(worker.*gauge.value,
                   {{"worker", std::to_string(worker.rank)}});
    }
  }
  AddShadows(options, state, builder);
}

}  // namespace agg
