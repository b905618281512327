#include "server/config/combine_config.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/field_error.h"
#include "server/combine/rule_table.h"

namespace agg {
namespace {

absl::StatusOr<RuleOptions> MakeRule(const v1::CombinationConfig& config,
                                     const std::string& path) {
  RuleOptions options;
  const absl::StatusOr<const Rule*> rule =
      ParseRule(path + ".rule", config.rule());
  if (!rule.ok()) return rule.status();
  options.rule = *rule;
  const absl::StatusOr<Scope> scope =
      ParseScope(path + ".scope", config.scope());
  if (!scope.ok()) return scope.status();
  options.scope = *scope;
  options.kappa_limit = config.kappa_limit();
  if (!config.has_adacons()) return options;
  if (!options.rule->Has(kTakesAdaconsOptions)) {
    return FieldError(
        path + ".adacons", "set",
        absl::StrCat("to be left out with rule ", Quoted(config.rule())));
  }
  const absl::StatusOr<AdaconsRescale> rescale = ParseAdaconsRescale(
      path + ".adacons.rescale", config.adacons().rescale());
  if (!rescale.ok()) return rescale.status();
  options.adacons.beta = config.adacons().beta();
  options.adacons.epsilon = config.adacons().epsilon();
  options.adacons.rescale = *rescale;
  return options;
}

absl::StatusOr<StepScaleOptions> MakeStepScale(
    const v1::StepScaleConfig& config) {
  StepScaleOptions options;
  const absl::StatusOr<StepScale> kind =
      ParseStepScale("step_scale.kind", config.kind());
  if (!kind.ok()) return kind.status();
  const absl::StatusOr<Averaging> averaging =
      ParseAveraging("step_scale.averaging", config.averaging());
  if (!averaging.ok()) return averaging.status();
  if (config.has_smoothing() &&
      !(config.smoothing() >= 0.0 && config.smoothing() < 1.0)) {
    return FieldError("step_scale.smoothing", absl::StrCat(config.smoothing()),
                      "0 <= smoothing < 1");
  }
  options.kind = *kind;
  options.averaging = *averaging;
  options.clip_before_average = config.clip_before_average();
  options.smoothing = config.has_smoothing() ? config.smoothing() : -1.0;
  options.variance_floor = config.variance_floor();
  options.relative_floor = config.relative_floor();
  options.baseline_examples = config.baseline_examples();
  options.force = config.force();
  return options;
}

absl::Status CheckUnused(bool set, absl::string_view field,
                         const v1::LearningRateConfig& config) {
  if (!set) return absl::OkStatus();
  return FieldError(
      absl::StrCat("learning_rate.", field), "set",
      absl::StrCat("to be left out with schedule ", Quoted(config.schedule())));
}

absl::Status CheckUsed(const v1::LearningRateConfig& config,
                       ScheduleKind kind) {
  const bool multistep = kind == ScheduleKind::kMultistep;
  const bool exponential = kind == ScheduleKind::kExponential;
  const bool polynomial = kind == ScheduleKind::kPolynomial;
  const bool cosine = kind == ScheduleKind::kCosine;
  absl::Status status = CheckUnused(!multistep && config.boundaries_size() > 0,
                                    "boundaries", config);
  status.Update(CheckUnused(!multistep && !exponential && config.has_gamma(),
                            "gamma", config));
  status.Update(CheckUnused(
      !exponential && !polynomial && !cosine && config.decay_steps() != 0.0,
      "decay_steps", config));
  status.Update(
      CheckUnused(!polynomial && !cosine && config.final_factor() != 0.0,
                  "final_factor", config));
  status.Update(
      CheckUnused(!polynomial && config.has_power(), "power", config));
  return status;
}

absl::StatusOr<ScheduleOptions> MakeSchedule(
    const v1::LearningRateConfig& config) {
  const absl::StatusOr<ScheduleKind> kind =
      ParseScheduleKind("learning_rate.schedule", config.schedule());
  if (!kind.ok()) return kind.status();
  const absl::Status status = CheckUsed(config, *kind);
  if (!status.ok()) return status;
  ScheduleOptions options;
  options.kind = *kind;
  options.learning_rate = config.rate();
  options.warmup_steps = config.warmup_steps();
  options.warmup_start_factor = config.warmup_start_factor();
  options.boundaries.assign(config.boundaries().begin(),
                            config.boundaries().end());
  if (config.has_gamma()) options.gamma = config.gamma();
  options.decay_steps = config.decay_steps();
  options.final_factor = config.final_factor();
  if (config.has_power()) options.power = config.power();
  return options;
}

}  // namespace

absl::StatusOr<CombineOptions> MakeCombineOptions(const v1::JobConfig& config) {
  CombineOptions options;
  absl::StatusOr<RuleOptions> rule =
      MakeRule(config.combination(), "combination");
  if (!rule.ok()) return rule.status();
  options.rule = *rule;
  for (int i = 0; i < config.shadow_rules_size(); ++i) {
    rule =
        MakeRule(config.shadow_rules(i), absl::StrCat("shadow_rules[", i, "]"));
    if (!rule.ok()) return rule.status();
    options.shadow_rules.push_back(*rule);
  }
  const absl::StatusOr<StepScaleOptions> scale =
      MakeStepScale(config.step_scale());
  if (!scale.ok()) return scale.status();
  options.step_scale = *scale;
  const absl::StatusOr<ScheduleOptions> schedule =
      MakeSchedule(config.learning_rate());
  if (!schedule.ok()) return schedule.status();
  options.schedule = *schedule;
  options.clip_norm = config.clip_norm();
  options.scale_invariant_iterations = config.scale_invariant_iterations();
  const absl::Status status = ValidateCombineOptions(options);
  if (!status.ok()) return status;
  return options;
}

}  // namespace agg
