// Names become rules, scopes and schedules here, and fields that the chosen
// schedule does not use are refused.
#include "server/config/combine_config.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/base/field_error.h"
#include "server/combine/rule_table.h"

namespace agg {
namespace {

RuleOptions MakeRule(const v1::CombinationConfig& config,
                     const std::string& path, FieldErrors* errors) {
  RuleOptions options;
  options.kappa_limit = config.kappa_limit();
  const bool known =
      errors->Take(ParseRule(path + ".rule", config.rule()), &options.rule);
  // WithDefaults knows no scope and no fields for an unknown rule: errors about
  // them would not be the reader's.
  if (known || !config.scope().empty()) {
    errors->Take(ParseScope(path + ".scope", config.scope()), &options.scope);
  }
  if (!known || !config.has_adacons()) return options;
  if (!options.rule->Has(kTakesAdaconsOptions)) {
    errors->Add(FieldError(
        path + ".adacons", "set",
        absl::StrCat("to be left out with rule ", Quoted(config.rule()))));
    return options;
  }
  options.adacons.beta = config.adacons().beta();
  options.adacons.epsilon = config.adacons().epsilon();
  errors->Take(ParseAdaconsRescale(path + ".adacons.rescale",
                                   config.adacons().rescale()),
               &options.adacons.rescale);
  return options;
}

StepScaleOptions MakeStepScale(const v1::StepScaleConfig& config,
                               FieldErrors* errors) {
  StepScaleOptions options;
  errors->Take(ParseStepScale("step_scale.kind", config.kind()), &options.kind);
  errors->Take(ParseAveraging("step_scale.averaging", config.averaging()),
               &options.averaging);
  options.clip_before_average = config.clip_before_average();
  // Left out, it stays negative: "by the number of micro-gradients".
  if (config.has_smoothing()) {
    if (config.smoothing() >= 0.0 && config.smoothing() < 1.0) {
      options.smoothing = config.smoothing();
    } else {
      errors->Add(FieldError("step_scale.smoothing",
                             absl::StrCat(config.smoothing()),
                             "0 <= smoothing < 1"));
    }
  }
  options.variance_floor = config.variance_floor();
  options.relative_floor = config.relative_floor();
  options.baseline_examples = config.baseline_examples();
  options.force = config.force();
  return options;
}

// Errors about fields that are set, but not used by the schedule.
void CheckUsed(const v1::LearningRateConfig& config, ScheduleKind kind,
               FieldErrors* errors) {
  const bool multistep = kind == ScheduleKind::kMultistep;
  const bool exponential = kind == ScheduleKind::kExponential;
  const bool polynomial = kind == ScheduleKind::kPolynomial;
  const bool cosine = kind == ScheduleKind::kCosine;
  const struct {
    const char* name;
    bool set;
    bool used;
  } fields[] = {
      {"boundaries", config.boundaries_size() > 0, multistep},
      {"gamma", config.has_gamma(), multistep || exponential},
      {"decay_steps", config.decay_steps() != 0.0,
       exponential || polynomial || cosine},
      {"final_factor", config.final_factor() != 0.0, polynomial || cosine},
      {"power", config.has_power(), polynomial},
  };
  for (const auto& field : fields) {
    if (!field.set || field.used) continue;
    errors->Add(FieldError(absl::StrCat("learning_rate.", field.name), "set",
                           absl::StrCat("to be left out with schedule ",
                                        Quoted(config.schedule()))));
  }
}

ScheduleOptions MakeSchedule(const v1::LearningRateConfig& config,
                             FieldErrors* errors) {
  ScheduleOptions options;
  if (errors->Take(
          ParseScheduleKind("learning_rate.schedule", config.schedule()),
          &options.kind)) {
    CheckUsed(config, options.kind, errors);
  }
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
  FieldErrors errors;
  CombineOptions options;
  options.rule = MakeRule(config.combination(), "combination", &errors);
  for (int i = 0; i < config.shadow_rules_size(); ++i) {
    options.shadow_rules.push_back(
        MakeRule(config.shadow_rules(i), absl::StrCat("shadow_rules[", i, "]"),
                 &errors));
  }
  options.step_scale = MakeStepScale(config.step_scale(), &errors);
  options.schedule = MakeSchedule(config.learning_rate(), &errors);
  options.clip_norm = config.clip_norm();
  options.scale_invariant_iterations = config.scale_invariant_iterations();
  // What could not be read has its default by now, which is valid.
  errors.Add(ValidateCombineOptions(options));
  if (!errors.empty()) return errors.status();
  return options;
}

}  // namespace agg
