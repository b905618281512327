// Names, labels and help texts of the rounds' series. Those of the round's
// numbers come from the table in server/round/round_numbers.
#include "server/metrics/round_families.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "server/metrics/family_builder.h"
#include "server/metrics/metrics_options.h"
#include "server/metrics/round_state.h"
#include "server/round/round_numbers.h"
#include "server/round/timed_phases.h"

namespace agg {
namespace {

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
  builder->Add(static_cast<double>(state.short_rounds), {{"kind", "few_rows"}});
  builder->BeginCounter("aggserver_narrowed_values_total",
                        "Values that pull_dtype cannot hold, by what they "
                        "become.");
  builder->Add(static_cast<double>(state.narrowed_to_infinity),
               {{"becomes", "infinity"}});
  builder->Add(static_cast<double>(state.narrowed_to_zero),
               {{"becomes", "zero"}});
  builder->Counter("aggserver_examples_total",
                   "Training examples that entered applied rounds.",
                   static_cast<double>(state.examples));
  builder->Counter("aggserver_excluded_rows_total",
                   "Gradients left out: not finite, or not on all shards.",
                   static_cast<double>(state.excluded_rows));
  builder->Counter("aggserver_outlier_rows_total",
                   "Gradients with an unusual norm, left out or not.",
                   static_cast<double>(state.outlier_rows));
}

void AddWorkerTotals(const RoundState& state, FamilyBuilder* builder) {
  builder->BeginCounter("aggserver_worker_excluded_rows_total",
                        "A worker's gradients left out, not being finite.");
  for (size_t i = 0; i < state.excluded_by_rank.size(); ++i) {
    builder->Add(static_cast<double>(state.excluded_by_rank[i]),
                 {{"worker", std::to_string(i)}});
  }
  builder->BeginCounter("aggserver_worker_outlier_rows_total",
                        "A worker's gradients with an unusual norm.");
  for (size_t i = 0; i < state.outliers_by_rank.size(); ++i) {
    builder->Add(static_cast<double>(state.outliers_by_rank[i]),
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
  for (size_t i = 0; i < kTimedPhases.size(); ++i) {
    builder->AddHistogram(state.phases[i], {{"phase", kTimedPhases[i].name}});
  }
  builder->BeginHistogram("aggserver_round_seconds",
                          "Wall time of complete rounds: all phases.");
  builder->AddHistogram(state.rounds, {});
  builder->Gauge("aggserver_last_round_timestamp_seconds",
                 "Unix time at which the last round ended.",
                 state.last_round_time);
}

// A series for each number, and where tensors have values of their own, one for
// each selected tensor. The model's value then has tensor="", which to
// Prometheus is the same as no such label.
void AddNumber(size_t index, const RoundState& state, FamilyBuilder* builder) {
  const RoundNumber& number = RoundNumbers()[index];
  const std::string metric = NameIn(number, &RoundOutlets::metric);
  if (metric.empty()) return;
  if (number.set_by == SetBy::kSum) {
    builder->BeginCounter("aggserver_" + metric, number.help);
  } else {
    builder->BeginGauge("aggserver_" + metric, number.help);
  }
  const double value = state.gauges.numbers[index];
  if (number.tensor == nullptr) {
    builder->Add(value);
    return;
  }
  builder->Add(value, {{"tensor", ""}});
  const auto& selected = state.selection->tensors;
  const auto& gauges = state.gauges.tensors;
  for (size_t i = 0; i < selected.size(); ++i) {
    builder->Add(i < gauges.size() ? gauges[i].*number.tensor : kUndefined,
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
  builder->Gauge("aggserver_tensors", "Tensors of the manifest.",
                 static_cast<double>(state.selection->num_tensors));
  for (size_t i = 0; i < RoundNumbers().size(); ++i) {
    AddNumber(i, state, builder);
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
