// Names become rules, scopes and schedules here, and fields that these do not
// use are refused. What numbers may be is said by ValidateCombineOptions, which
// agg_combine's flags need, too.
#include "server/config/combine_config.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/combine/outliers.h"
#include "server/combine/rule_table.h"
#include "server/config/config_fields.h"

namespace agg {
namespace {

// Whether the options of these rules may be; says why not if they are `set`.
bool MayHave(const Rule& rule, RuleTrait trait, bool set,
             const std::string& field, FieldErrors* errors) {
  if (rule.Has(trait)) return true;
  if (set) {
    errors->Add(FieldError(
        field, "set",
        absl::StrCat("to be left out with rule ", Quoted(rule.name))));
  }
  return false;
}

// The guarantee needs 2 f + 3 rows, and a mean of more than P - f of them would
// have byzantine ones in it.
void ReadKrum(const Rule& rule, int32_t workers, bool selects,
              const std::string& path, ConfigFields* fields,
              KrumOptions* options, FieldErrors* errors) {
  const int32_t most = std::max(MostByzantineWorkers(workers), 0);
  options->byzantine_workers = DefaultByzantineWorkers(workers);
  if (!fields->Number("krum.byzantine_workers", &options->byzantine_workers,
                      Between(0, most),
                      absl::StrCat("0 to (workers - 3) / 2 (", most, ")"))) {
    return;
  }
  if (selects &&
      !MayHave(rule, kSelectsSeveral, true, path + "krum.selected", errors)) {
    return;
  }
  const int32_t most_selected = workers - options->byzantine_workers;
  fields->Number("krum.selected", &options->selected, Between(0, most_selected),
                 absl::StrCat("0 (all but byzantine_workers) to workers - "
                              "byzantine_workers (",
                              most_selected, ")"));
}

RuleOptions ReadRule(int32_t workers, const std::string& path,
                     v1::CombinationConfig* config, FieldErrors* errors) {
  RuleOptions options;
  ConfigFields fields(config, path, errors);
  fields.Number("kappa_limit", &options.kappa_limit);
  const bool known =
      fields.Name("rule", DefaultRule().name, ParseRule, &options.rule);
  const Rule& rule = *options.rule;
  // An unknown rule has no scope and no fields: errors about them would not be
  // the reader's.
  if (known || !config->scope().empty()) {
    fields.Name("scope", ScopeName(rule.default_scope), ParseScope,
                &options.scope);
  }
  if (!known) return options;
  if (MayHave(rule, kTakesAdaconsOptions, config->has_adacons(),
              path + "adacons", errors)) {
    AdaconsOptions* const adacons = &options.adacons;
    fields.Number("adacons.beta", &adacons->beta);
    fields.Number("adacons.epsilon", &adacons->epsilon);
    fields.Name("adacons.rescale", AdaconsRescaleName(adacons->rescale),
                ParseAdaconsRescale, &adacons->rescale);
    fields.Name("adacons.unsort", AdaconsUnsortName(adacons->unsort),
                ParseAdaconsUnsort, &adacons->unsort);
  }
  if (MayHave(rule, kTakesKrumOptions, config->has_krum(), path + "krum",
              errors)) {
    ReadKrum(rule, workers, config->krum().selected() != 0, path, &fields,
             &options.krum, errors);
  }
  if (MayHave(rule, kTakesGeometricMedianOptions,
              config->has_geometric_median(), path + "geometric_median",
              errors)) {
    GeometricMedianOptions* const median = &options.geometric_median;
    fields.Number("geometric_median.iterations", &median->iterations);
    fields.Number("geometric_median.epsilon", &median->epsilon);
  }
  if (MayHave(rule, kIsExternal, config->has_external(), path + "external",
              errors)) {
    ExternalOptions* const external = &options.external;
    fields.Text("external.name", &external->name, nullptr, "");
    fields.Name("external.fallback", external->fallback->name, ParseRule,
                &external->fallback);
    fields.Number("external.timeout_seconds", &external->timeout_seconds);
    options.krum.byzantine_workers = DefaultByzantineWorkers(workers);
  }
  return options;
}

void ReadOutliers(const v1::JobConfig& config, ConfigFields* fields,
                  OutlierOptions* options, FieldErrors* errors) {
  if (!config.has_outliers()) return;
  errors->Add(CheckField(
      config.workers() >= static_cast<int>(kMinJudgedRows), "workers",
      config.workers(),
      absl::StrCat("at least ", kMinJudgedRows, " with outliers set")));
  options->max_deviations = 6.0;
  fields->Number("outliers.max_deviations", &options->max_deviations);
  fields->Name("outliers.action", OutlierActionName(options->action),
               ParseOutlierAction, &options->action);
}

void ReadStepScale(const v1::JobConfig& job, ConfigFields* fields,
                   StepScaleOptions* options) {
  const v1::StepScaleConfig& config = job.step_scale();
  fields->Name("step_scale.kind", StepScaleName(options->kind), ParseStepScale,
               &options->kind);
  fields->Name("step_scale.averaging", "debiased", ParseAveraging,
               &options->averaging);
  fields->Name("step_scale.smoothing_per", "round", ParseSmoothingPer,
               &options->smoothing_per);
  fields->Name("step_scale.gain_scope", "global", ParseGainScope,
               &options->gain_scope);
  if (options->gain_scope == GainScope::kPerGroup) {
    options->groups = {""};
    for (const v1::GroupConfig& group : job.groups()) {
      options->groups.push_back(group.name());
    }
  }
  fields->Switch("step_scale.clip_before_average",
                 &options->clip_before_average);
  // Left out, it stays negative: "by the number of micro-gradients".
  if (config.has_smoothing()) {
    fields->Number(
        "step_scale.smoothing", &options->smoothing,
        [](double value) { return value >= 0.0 && value < 1.0; },
        "0 <= smoothing < 1");
  }
  fields->Number("step_scale.variance_floor", &options->variance_floor);
  fields->Number("step_scale.relative_floor", &options->relative_floor);
  fields->Number("step_scale.baseline_examples", &options->baseline_examples);
  fields->Switch("step_scale.force", &options->force);
}

void ReadSchedule(const v1::LearningRateConfig& config, bool has_optimizer,
                  ConfigFields* fields, ScheduleOptions* options,
                  FieldErrors* errors) {
  const bool known = fields->Name("learning_rate.schedule", "constant",
                                  ParseScheduleKind, &options->kind);
  // The optimizer `none` has no use for it, the schedule needs a number.
  options->learning_rate = has_optimizer ? 0.0 : 1.0;
  fields->Number("learning_rate.rate", &options->learning_rate);
  fields->Number("learning_rate.warmup_steps", &options->warmup_steps);
  fields->Number("learning_rate.warmup_start_factor",
                 &options->warmup_start_factor);
  const bool multistep = options->kind == ScheduleKind::kMultistep;
  const bool exponential = options->kind == ScheduleKind::kExponential;
  const bool polynomial = options->kind == ScheduleKind::kPolynomial;
  const bool cosine = options->kind == ScheduleKind::kCosine;
  // One that is set must be used by the schedule.
  const struct {
    const char* name;
    double* target;  // null: a list
    bool set;
    bool used;
  } rows[] = {
      {"boundaries", nullptr, config.boundaries_size() > 0, multistep},
      {"gamma", &options->gamma, config.has_gamma(), multistep || exponential},
      {"decay_steps", &options->decay_steps, config.decay_steps() != 0.0,
       exponential || polynomial || cosine},
      {"final_factor", &options->final_factor, config.final_factor() != 0.0,
       polynomial || cosine},
      {"power", &options->power, config.has_power(), polynomial},
  };
  for (const auto& row : rows) {
    const std::string path = absl::StrCat("learning_rate.", row.name);
    if (row.set && !row.used && known) {
      errors->Add(FieldError(path, "set",
                             absl::StrCat("to be left out with schedule ",
                                          Quoted(config.schedule()))));
    }
    if (row.target != nullptr && (row.set || row.used)) {
      fields->Number(path, row.target);
    }
  }
  options->boundaries.assign(config.boundaries().begin(),
                             config.boundaries().end());
}

}  // namespace

void ReadCombination(v1::JobConfig* config, CombineOptions* options,
                     FieldErrors* errors) {
  ConfigFields fields(config, "", errors);
  options->rule = ReadRule(config->workers(), "combination.",
                           config->mutable_combination(), errors);
  for (int i = 0; i < config->shadow_rules_size(); ++i) {
    options->shadow_rules.push_back(
        ReadRule(config->workers(), absl::StrCat("shadow_rules[", i, "]."),
                 config->mutable_shadow_rules(i), errors));
  }
  ReadOutliers(*config, &fields, &options->outliers, errors);
  ReadStepScale(*config, &fields, &options->step_scale);
  ReadSchedule(config->learning_rate(), config->optimizer().kind() != "none",
               &fields, &options->schedule, errors);
  fields.Number("clip_norm", &options->clip_norm);
  fields.Number("scale_invariant_iterations",
                &options->scale_invariant_iterations);
  // What could not be read has its default by now, which is valid.
  errors->Add(ValidateCombineOptions(*options));
}

}  // namespace agg
