// Names become rules, scopes and schedules here, and fields that the chosen
// schedule does not use are refused.
#include "server/config/combine_config.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/base/dcheck.h"
#include "server/base/field_error.h"
#include "server/combine/outliers.h"
#include "server/combine/rule_table.h"

namespace agg {
namespace {

// Whether the options of these rules, which are set, may be; says why not.
bool MayHave(const Rule& rule, RuleTrait trait, const std::string& field,
             FieldErrors* errors) {
  if (rule.Has(trait)) return true;
  errors->Add(
      FieldError(field, "set",
                 absl::StrCat("to be left out with rule ", Quoted(rule.name))));
  return false;
}

void TakeAdacons(const v1::CombinationConfig::AdaCons& config,
                 const std::string& path, AdaconsOptions* options,
                 FieldErrors* errors) {
  options->beta = config.beta();
  options->epsilon = config.epsilon();
  errors->Take(ParseAdaconsRescale(path + ".adacons.rescale", config.rescale()),
               &options->rescale);
}

// The guarantee needs 2 f + 3 rows, and a mean of more than P - f of them would
// have byzantine ones in it.
void TakeKrum(const v1::CombinationConfig::Krum& config, int32_t workers,
              const std::string& path, RuleOptions* options,
              FieldErrors* errors) {
  const int32_t most = std::max(MostByzantineWorkers(workers), 0);
  const int32_t byzantine = config.byzantine_workers();
  const bool few = byzantine >= 0 && byzantine <= most;
  errors->Add(CheckField(few, path + ".krum.byzantine_workers", byzantine,
                         absl::StrCat("0 to (workers - 3) / 2 (", most, ")")));
  if (!few) return;
  options->krum.byzantine_workers = byzantine;
  if (config.selected() != 0 && !MayHave(*options->rule, kSelectsSeveral,
                                         path + ".krum.selected", errors)) {
    return;
  }
  const int32_t most_selected = workers - byzantine;
  errors->Add(
      CheckField(config.selected() >= 0 && config.selected() <= most_selected,
                 path + ".krum.selected", config.selected(),
                 absl::StrCat("0 (all but byzantine_workers) to workers - "
                              "byzantine_workers (",
                              most_selected, ")")));
  options->krum.selected = std::max(config.selected(), 0);
}

RuleOptions MakeRule(const v1::CombinationConfig& config, int32_t workers,
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
  if (!known) return options;
  const Rule& rule = *options.rule;
  if (config.has_adacons() &&
      MayHave(rule, kTakesAdaconsOptions, path + ".adacons", errors)) {
    TakeAdacons(config.adacons(), path, &options.adacons, errors);
  }
  if (config.has_krum() &&
      MayHave(rule, kTakesKrumOptions, path + ".krum", errors)) {
    TakeKrum(config.krum(), workers, path, &options, errors);
  }
  if (config.has_geometric_median() &&
      MayHave(rule, kTakesGeometricMedianOptions, path + ".geometric_median",
              errors)) {
    options.geometric_median = {config.geometric_median().iterations(),
                                config.geometric_median().epsilon()};
  }
  return options;
}

OutlierOptions MakeOutliers(const v1::JobConfig& config, FieldErrors* errors) {
  OutlierOptions options;
  if (!config.has_outliers()) return options;
  errors->Add(CheckField(
      config.workers() >= static_cast<int>(kMinJudgedRows), "workers",
      config.workers(),
      absl::StrCat("at least ", kMinJudgedRows, " with outliers set")));
  options.max_deviations = config.outliers().max_deviations();
  errors->Take(
      ParseOutlierAction("outliers.action", config.outliers().action()),
      &options.action);
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
  AGG_DCHECK(!config.publish().empty());
  FieldErrors errors;
  CombineOptions options;
  options.rule =
      MakeRule(config.combination(), config.workers(), "combination", &errors);
  for (int i = 0; i < config.shadow_rules_size(); ++i) {
    options.shadow_rules.push_back(
        MakeRule(config.shadow_rules(i), config.workers(),
                 absl::StrCat("shadow_rules[", i, "]"), &errors));
  }
  options.outliers = MakeOutliers(config, &errors);
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
