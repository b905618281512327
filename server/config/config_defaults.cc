// Sets what the text leaves out. The order matters: some defaults depend on
// fields that were completed before them.
#include "server/config/config_defaults.h"

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "server/combine/options.h"
#include "server/combine/rule_table.h"
#include "server/config/access_config.h"
#include "server/config/optimizer_config.h"
#include "server/config/security_config.h"
#include "server/config/survival_config.h"

namespace agg {
namespace {

void Default(std::string* field, absl::string_view value) {
  if (field->empty()) *field = std::string(value);
}

void CompleteKrum(int32_t workers, v1::CombinationConfig::Krum* krum) {
  if (krum->has_byzantine_workers()) return;
  krum->set_byzantine_workers(DefaultByzantineWorkers(workers));
}

void CompleteGeometricMedian(v1::CombinationConfig::GeometricMedian* median) {
  const GeometricMedianOptions defaults;
  if (median->iterations() == 0) median->set_iterations(defaults.iterations);
  if (median->epsilon() == 0.0) median->set_epsilon(defaults.epsilon);
}

void CompleteOutliers(v1::OutlierConfig* outliers) {
  if (outliers->max_deviations() == 0.0) outliers->set_max_deviations(6.0);
  Default(outliers->mutable_action(),
          OutlierActionName(OutlierOptions().action));
}

void CompleteRule(int32_t workers, v1::CombinationConfig* config) {
  const RuleOptions defaults;
  Default(config->mutable_rule(), DefaultRule().name);
  if (config->kappa_limit() == 0.0) {
    config->set_kappa_limit(defaults.kappa_limit);
  }
  const Rule* const rule = FindRule(config->rule());
  if (rule == nullptr) return;  // MakeCombineOptions reports it.
  Default(config->mutable_scope(), ScopeName(rule->default_scope));
  if (rule->Has(kTakesKrumOptions)) {
    CompleteKrum(workers, config->mutable_krum());
  }
  if (rule->Has(kTakesGeometricMedianOptions)) {
    CompleteGeometricMedian(config->mutable_geometric_median());
  }
  if (!rule->Has(kTakesAdaconsOptions)) return;
  v1::CombinationConfig::AdaCons* adacons = config->mutable_adacons();
  if (!adacons->has_beta()) adacons->set_beta(defaults.adacons.beta);
  if (adacons->epsilon() == 0.0) adacons->set_epsilon(defaults.adacons.epsilon);
  Default(adacons->mutable_rescale(), "none");
}

void CompleteStepScale(v1::StepScaleConfig* config) {
  Default(config->mutable_kind(), "none");
  Default(config->mutable_averaging(), "debiased");
  if (!config->has_clip_before_average()) {
    config->set_clip_before_average(true);
  }
  if (!config->has_variance_floor()) config->set_variance_floor(1e-6);
}

void CompleteLearningRate(v1::LearningRateConfig* config, bool required) {
  Default(config->mutable_schedule(), "constant");
  // The optimizer `none` has no use for it, the schedule needs a number.
  if (!required && config->rate() == 0.0) config->set_rate(1.0);
  const std::string& schedule = config->schedule();
  if ((schedule == "multistep" || schedule == "exponential") &&
      !config->has_gamma()) {
    config->set_gamma(0.1);
  }
  if (schedule == "polynomial" && !config->has_power()) config->set_power(1.0);
}

void CompleteWorkers(v1::JobConfig* config) {
  // A job that did not ask for a floor goes on with whoever is left.
  Default(config->mutable_floor_policy(),
          config->min_workers() == 0 ? "warn" : "wait");
  if (config->min_workers() == 0) config->set_min_workers(config->workers());
  if (config->floor_policy() == "fail" &&
      config->floor_timeout_seconds() == 0.0) {
    config->set_floor_timeout_seconds(300.0);
  }
  if (config->max_workers() == 0) config->set_max_workers(config->workers());
  if (!config->has_max_skipped_rounds()) config->set_max_skipped_rounds(100);
  Default(config->mutable_on_divergence(), "warn");
  if (config->lease_seconds() == 0.0) config->set_lease_seconds(30.0);
  if (config->reconnect_grace_seconds() == 0.0) {
    config->set_reconnect_grace_seconds(5.0);
  }
  if (config->straggler_warning_seconds() == 0.0) {
    config->set_straggler_warning_seconds(60.0);
  }
  if (config->start_warning_seconds() == 0.0) {
    config->set_start_warning_seconds(5.0);
  }
  if (config->phase_timeout_seconds() == 0.0) {
    config->set_phase_timeout_seconds(600.0);
  }
}

}  // namespace

v1::JobConfig WithDefaults(v1::JobConfig config) {
  Default(config.mutable_job(), "default");
  if (config.shards().empty()) config.add_shards("127.0.0.1:50051");
  CompleteWorkers(&config);
  CompleteRule(config.workers(), config.mutable_combination());
  for (v1::CombinationConfig& rule : *config.mutable_shadow_rules()) {
    CompleteRule(config.workers(), &rule);
  }
  if (config.has_outliers()) CompleteOutliers(config.mutable_outliers());
  CompleteStepScale(config.mutable_step_scale());
  CompleteOptimizer(config.mutable_optimizer());
  CompleteLearningRate(config.mutable_learning_rate(),
                       config.optimizer().kind() != "none");
  for (v1::GroupConfig& group : *config.mutable_groups()) {
    if (!group.has_learning_rate_factor()) {
      group.set_learning_rate_factor(1.0);
    }
  }
  Default(config.mutable_push_dtype(), "f32");
  Default(config.mutable_pull_dtype(), "f32");
  Default(config.mutable_backend(), "cpu");
  Default(config.mutable_cuda_gram(), "by_device");
  Default(config.mutable_unix_socket(), "auto");
  Default(config.mutable_shared_memory(), "auto");
  Default(config.mutable_publish(), "atomic");
  v1::MetricsConfig* metrics = config.mutable_metrics();
  if (metrics->max_tensors() == 0) metrics->set_max_tensors(32);
  if (metrics->max_workers() == 0) metrics->set_max_workers(64);
  v1::RoundLogConfig* round_log = config.mutable_round_log();
  if (round_log->max_bytes() == 0) {
    round_log->set_max_bytes(int64_t{1} << 30);
  }
  CompleteSurvival(&config);
  CompleteSecurity(&config);
  CompleteAccess(&config);
  return config;
}

}  // namespace agg
