// Names and ranges of all options. Paths in errors are those of
// proto/config.proto, since that is where people set them.
#include "server/combine/options.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "server/base/field_error.h"
#include "server/combine/rule_table.h"

namespace agg {

namespace {

template <typename Enum>
struct Name {
  Enum value;
  absl::string_view name;
};

constexpr Name<Scope> kScopes[] = {
    {Scope::kPerTensor, "per_tensor"},
    {Scope::kGlobal, "global"},
};
constexpr Name<StepScale> kStepScales[] = {
    {StepScale::kNone, "none"},           {StepScale::kLinear, "linear"},
    {StepScale::kSqrt, "sqrt"},           {StepScale::kAdascale, "adascale"},
    {StepScale::kAdamscale, "adamscale"},
};
constexpr Name<AdaconsRescale> kRescales[] = {
    {AdaconsRescale::kNone, "none"},
    {AdaconsRescale::kMeanNorm, "mean_norm"},
    {AdaconsRescale::kMatchMean, "match_mean"},
};
constexpr Name<AdaconsUnsort> kUnsorts[] = {
    {AdaconsUnsort::kScatter, "scatter"},
    {AdaconsUnsort::kGather, "gather"},
};
constexpr Name<OutlierAction> kOutlierActions[] = {
    {OutlierAction::kExclude, "exclude"},
    {OutlierAction::kWarn, "warn"},
};
constexpr Name<Averaging> kAveragings[] = {
    {Averaging::kDebiased, "debiased"},
    {Averaging::kPaper, "paper"},
    {Averaging::kLagged, "lagged"},
};
constexpr Name<SmoothingPer> kSmoothingPers[] = {
    {SmoothingPer::kRound, "round"},
    {SmoothingPer::kBaselineBatch, "baseline_batch"},
};
constexpr Name<GainScope> kGainScopes[] = {
    {GainScope::kGlobal, "global"},
    {GainScope::kPerGroup, "per_group"},
};
constexpr Name<ScheduleKind> kSchedules[] = {
    {ScheduleKind::kConstant, "constant"},
    {ScheduleKind::kMultistep, "multistep"},
    {ScheduleKind::kExponential, "exponential"},
    {ScheduleKind::kPolynomial, "polynomial"},
    {ScheduleKind::kCosine, "cosine"},
    {ScheduleKind::kInverseSqrt, "inverse_sqrt"},
};

template <typename Enum>
absl::string_view FindName(absl::Span<const Name<Enum>> names, Enum value) {
  for (const Name<Enum>& entry : names) {
    if (entry.value == value) return entry.name;
  }
  return "unknown";
}

template <typename Enum>
absl::StatusOr<Enum> Parse(absl::Span<const Name<Enum>> names,
                           absl::string_view field, absl::string_view name) {
  std::vector<std::string> allowed;
  for (const Name<Enum>& entry : names) {
    if (entry.name == name) return entry.value;
    allowed.push_back(Quoted(entry.name));
  }
  return FieldError(field, Quoted(name), absl::StrJoin(allowed, ", "));
}

// Each one costs O(P^2) in each round.
constexpr int32_t kMaxIterations = 1000;
// That a round may wait for an external rule.
constexpr double kMostSeconds = 3600.0;

// Which rules may take the place of an external one.
bool MayFallBackTo(const Rule& rule) {
  return !rule.Has(kIsExternal) && !rule.Has(kKeepsState);
}

void CheckExternal(const ExternalOptions& external, const std::string& path,
                   FieldErrors* errors) {
  if (!IsExternalName(external.name)) {
    errors->Add(FieldError(absl::StrCat(path, "name"), Quoted(external.name),
                           "[A-Za-z0-9_.-]{1,64}"));
  }
  if (!MayFallBackTo(*external.fallback)) {
    std::vector<std::string> allowed;
    for (const Rule& rule : Rules()) {
      if (MayFallBackTo(rule)) allowed.push_back(Quoted(rule.name));
    }
    errors->Add(FieldError(absl::StrCat(path, "fallback"),
                           Quoted(external.fallback->name),
                           absl::StrCat("a rule that keeps no state: ",
                                        absl::StrJoin(allowed, ", "))));
  }
  errors->Add(CheckField(external.timeout_seconds > 0.0 &&
                             external.timeout_seconds <= kMostSeconds,
                         absl::StrCat(path, "timeout_seconds"),
                         external.timeout_seconds,
                         absl::StrCat("> 0, at most ", kMostSeconds)));
}

void CheckRule(const RuleOptions& rule, absl::string_view path,
               FieldErrors* errors) {
  errors->Add(CheckField(rule.kappa_limit >= 1.0,
                         absl::StrCat(path, ".kappa_limit"), rule.kappa_limit,
                         ">= 1"));
  const double beta = rule.adacons.beta;
  errors->Add(CheckField(beta >= 0.0 && beta < 1.0,
                         absl::StrCat(path, ".adacons.beta"), beta,
                         "in [0, 1)"));
  errors->Add(CheckField(IsFinitePositive(rule.adacons.epsilon),
                         absl::StrCat(path, ".adacons.epsilon"),
                         rule.adacons.epsilon, "finite and > 0"));
  errors->Add(CheckField(rule.krum.byzantine_workers >= 0,
                         absl::StrCat(path, ".krum.byzantine_workers"),
                         rule.krum.byzantine_workers, ">= 0"));
  errors->Add(
      CheckField(rule.krum.selected >= 0, absl::StrCat(path, ".krum.selected"),
                 rule.krum.selected, ">= 0 (0: all but byzantine_workers)"));
  const int32_t iterations = rule.geometric_median.iterations;
  errors->Add(CheckField(iterations >= 1 && iterations <= kMaxIterations,
                         absl::StrCat(path, ".geometric_median.iterations"),
                         iterations, absl::StrCat("1 to ", kMaxIterations)));
  const double epsilon = rule.geometric_median.epsilon;
  errors->Add(CheckField(epsilon >= 1e-8 && epsilon <= 1.0,
                         absl::StrCat(path, ".geometric_median.epsilon"),
                         epsilon, "in [1e-8, 1]"));
  CheckExternal(rule.external, absl::StrCat(path, ".external."), errors);
}

// A process has one name, by which it gets the questions of one rule.
void CheckExternalNames(const CombineOptions& options, FieldErrors* errors) {
  std::set<std::string> names;
  const auto check = [&](const RuleOptions& rule, absl::string_view path) {
    if (!rule.rule->Has(kIsExternal)) return;
    if (names.insert(rule.external.name).second) return;
    errors->Add(FieldError(absl::StrCat(path, ".external.name"),
                           Quoted(rule.external.name),
                           "another name than each other external rule's"));
  };
  check(options.rule, "combination");
  for (size_t i = 0; i < options.shadow_rules.size(); ++i) {
    check(options.shadow_rules[i], absl::StrCat("shadow_rules[", i, "]"));
  }
}

// More than the MAD's own share of one row is asked for, so that at least half
// of the rows are never outliers.
void CheckOutliers(const OutlierOptions& outliers, FieldErrors* errors) {
  const double most = outliers.max_deviations;
  errors->Add(CheckField(most == 0.0 || IsFiniteAtLeast(most, 1.0),
                         "outliers.max_deviations", most, "finite and >= 1"));
}

// A floor by the present round's norms would let the gain depend on the very
// gradient that it multiplies.
void CheckLagged(const StepScaleOptions& scale, FieldErrors* errors) {
  if (scale.averaging != Averaging::kLagged || scale.clip_before_average) {
    return;
  }
  errors->Add(CheckField(scale.relative_floor == 0.0,
                         "step_scale.relative_floor", scale.relative_floor,
                         "0 with averaging \"lagged\" and "
                         "clip_before_average: false, or clip_before_average: "
                         "true"));
}

void CheckStepScale(const StepScaleOptions& scale, const Rule& rule,
                    FieldErrors* errors) {
  errors->Add(CheckField(scale.smoothing < 1.0, "step_scale.smoothing",
                         scale.smoothing,
                         "< 1 (negative: max(1 - C/1000, 0), C the round's "
                         "micro-gradients)"));
  if (scale.smoothing_per == SmoothingPer::kBaselineBatch &&
      scale.smoothing < 0.0) {
    errors->Add(FieldError("step_scale.smoothing_per", "\"baseline_batch\"",
                           "with step_scale.smoothing set, of which it is the "
                           "power (0.999 for AdaptDL's averages)"));
  }
  errors->Add(CheckField(IsFiniteAtLeast(scale.variance_floor, 0.0),
                         "step_scale.variance_floor", scale.variance_floor,
                         "finite and >= 0"));
  errors->Add(CheckField(IsFiniteAtLeast(scale.relative_floor, 0.0),
                         "step_scale.relative_floor", scale.relative_floor,
                         "finite and >= 0"));
  errors->Add(CheckField(IsFiniteAtLeast(scale.baseline_examples, 0.0),
                         "step_scale.baseline_examples",
                         scale.baseline_examples,
                         "finite and >= 0 (0: count by accumulation)"));
  CheckLagged(scale, errors);
  const bool measures_gain =
      scale.kind == StepScale::kAdascale || scale.kind == StepScale::kAdamscale;
  if (measures_gain && !rule.Has(kIsMean) && !scale.force) {
    errors->Add(FieldError(
        "step_scale.kind", Quoted(StepScaleName(scale.kind)),
        absl::StrCat("with combination.rule ", NamesOfRulesWith(kIsMean),
                     ", whose gain it is; with ", Quoted(rule.name),
                     " only under step_scale.force: true, since the learning "
                     "rate would be scaled twice")));
  }
}

void CheckBoundaries(const std::vector<double>& boundaries,
                     FieldErrors* errors) {
  if (boundaries.empty()) {
    errors->Add(FieldError("learning_rate.boundaries", "empty",
                           "at least one for schedule \"multistep\""));
  }
  double previous = 0.0;
  for (size_t i = 0; i < boundaries.size(); ++i) {
    errors->Add(CheckField(
        IsFinitePositive(boundaries[i]) && boundaries[i] > previous,
        absl::StrCat("learning_rate.boundaries[", i, "]"), boundaries[i],
        "> 0, finite and greater than the one before"));
    previous = boundaries[i];
  }
}

void CheckSchedule(const ScheduleOptions& schedule, FieldErrors* errors) {
  errors->Add(CheckField(IsFinitePositive(schedule.learning_rate),
                         "learning_rate.rate", schedule.learning_rate,
                         "finite and > 0"));
  errors->Add(CheckField(IsFiniteAtLeast(schedule.warmup_steps, 0.0),
                         "learning_rate.warmup_steps", schedule.warmup_steps,
                         "finite and >= 0"));
  const double start = schedule.warmup_start_factor;
  errors->Add(CheckField(start >= 0.0 && start <= 1.0,
                         "learning_rate.warmup_start_factor", start,
                         "in [0, 1]"));
  errors->Add(CheckField(IsFinitePositive(schedule.gamma),
                         "learning_rate.gamma", schedule.gamma,
                         "finite and > 0"));
  errors->Add(CheckField(IsFiniteAtLeast(schedule.final_factor, 0.0),
                         "learning_rate.final_factor", schedule.final_factor,
                         "finite and >= 0"));
  errors->Add(CheckField(IsFinitePositive(schedule.power),
                         "learning_rate.power", schedule.power,
                         "finite and > 0"));
  const bool decays = schedule.kind == ScheduleKind::kExponential ||
                      schedule.kind == ScheduleKind::kPolynomial ||
                      schedule.kind == ScheduleKind::kCosine;
  if (decays) {
    errors->Add(CheckField(IsFinitePositive(schedule.decay_steps),
                           "learning_rate.decay_steps", schedule.decay_steps,
                           "finite and > 0 for this schedule"));
  }
  if (schedule.kind == ScheduleKind::kMultistep) {
    CheckBoundaries(schedule.boundaries, errors);
  }
}

}  // namespace

absl::string_view ScopeName(Scope scope) {
  return FindName<Scope>(kScopes, scope);
}

absl::string_view StepScaleName(StepScale scale) {
  return FindName<StepScale>(kStepScales, scale);
}

absl::string_view AdaconsRescaleName(AdaconsRescale rescale) {
  return FindName<AdaconsRescale>(kRescales, rescale);
}

absl::string_view AdaconsUnsortName(AdaconsUnsort unsort) {
  return FindName<AdaconsUnsort>(kUnsorts, unsort);
}

absl::string_view OutlierActionName(OutlierAction action) {
  return FindName<OutlierAction>(kOutlierActions, action);
}

absl::StatusOr<Scope> ParseScope(absl::string_view field,
                                 absl::string_view name) {
  return Parse<Scope>(kScopes, field, name);
}

absl::StatusOr<StepScale> ParseStepScale(absl::string_view field,
                                         absl::string_view name) {
  return Parse<StepScale>(kStepScales, field, name);
}

absl::StatusOr<AdaconsRescale> ParseAdaconsRescale(absl::string_view field,
                                                   absl::string_view name) {
  return Parse<AdaconsRescale>(kRescales, field, name);
}

absl::StatusOr<AdaconsUnsort> ParseAdaconsUnsort(absl::string_view field,
                                                 absl::string_view name) {
  return Parse<AdaconsUnsort>(kUnsorts, field, name);
}

absl::StatusOr<OutlierAction> ParseOutlierAction(absl::string_view field,
                                                 absl::string_view name) {
  return Parse<OutlierAction>(kOutlierActions, field, name);
}

absl::StatusOr<Averaging> ParseAveraging(absl::string_view field,
                                         absl::string_view name) {
  return Parse<Averaging>(kAveragings, field, name);
}

absl::StatusOr<SmoothingPer> ParseSmoothingPer(absl::string_view field,
                                               absl::string_view name) {
  return Parse<SmoothingPer>(kSmoothingPers, field, name);
}

absl::StatusOr<GainScope> ParseGainScope(absl::string_view field,
                                         absl::string_view name) {
  return Parse<GainScope>(kGainScopes, field, name);
}

absl::StatusOr<ScheduleKind> ParseScheduleKind(absl::string_view field,
                                               absl::string_view name) {
  return Parse<ScheduleKind>(kSchedules, field, name);
}

bool IsExternalName(absl::string_view name) {
  return !name.empty() && name.size() <= 64 &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  c == '_' || c == '.' || c == '-';
         });
}

absl::Status ValidateCombineOptions(const CombineOptions& options) {
  FieldErrors errors;
  CheckRule(options.rule, "combination", &errors);
  for (size_t i = 0; i < options.shadow_rules.size(); ++i) {
    CheckRule(options.shadow_rules[i], absl::StrCat("shadow_rules[", i, "]"),
              &errors);
  }
  CheckExternalNames(options, &errors);
  CheckOutliers(options.outliers, &errors);
  CheckStepScale(options.step_scale, *options.rule.rule, &errors);
  CheckSchedule(options.schedule, &errors);
  errors.Add(CheckField(IsFiniteAtLeast(options.clip_norm, 0.0), "clip_norm",
                        options.clip_norm, "finite and >= 0 (0: off)"));
  errors.Add(CheckField(
      IsFiniteAtLeast(options.scale_invariant_iterations, 0.0),
      "scale_invariant_iterations", options.scale_invariant_iterations,
      "finite and >= 0 (0: no end)"));
  return errors.status();
}

absl::Status CheckPipelining(const CombineOptions& options) {
  FieldErrors errors;
  const Rule& rule = *options.rule.rule;
  // An external rule may keep a state, too, and is asked once a round.
  const auto waits_for_all = [](const Rule& one) {
    return one.Has(kKeepsState) || one.Has(kIsExternal);
  };
  if (waits_for_all(rule)) {
    std::string allowed;
    for (const Rule& other : Rules()) {
      if (waits_for_all(other)) continue;
      allowed += (allowed.empty() ? "" : ", ") + Quoted(other.name);
    }
    errors.Add(FieldError("combination.rule", Quoted(rule.name),
                          "with publish \"pipelined\": " + allowed));
  }
  for (size_t i = 0; i < options.shadow_rules.size(); ++i) {
    const RuleOptions& shadow = options.shadow_rules[i];
    if (!shadow.rule->Has(kIsExternal)) continue;
    errors.Add(FieldError(absl::StrCat("shadow_rules[", i, "].rule"),
                          Quoted(shadow.rule->name),
                          "with publish \"pipelined\": one that is decided "
                          "in the server"));
  }
  if (options.rule.scope != Scope::kPerTensor) {
    errors.Add(FieldError("combination.scope",
                          Quoted(ScopeName(options.rule.scope)),
                          "with publish \"pipelined\": \"per_tensor\""));
  }
  errors.Add(CheckField(options.clip_norm == 0.0, "clip_norm",
                        options.clip_norm, "with publish \"pipelined\": 0"));
  if (options.outliers.max_deviations != 0.0) {
    errors.Add(FieldError("outliers", "set",
                          "to be left out with publish \"pipelined\": an "
                          "outlier's norm is one over all tensors"));
  }
  if (options.step_scale.kind != StepScale::kNone) {
    errors.Add(FieldError("step_scale.kind",
                          Quoted(StepScaleName(options.step_scale.kind)),
                          "with publish \"pipelined\": \"none\""));
  }
  if (options.step_scale.gain_scope != GainScope::kGlobal) {
    errors.Add(FieldError("step_scale.gain_scope", "\"per_group\"",
                          "with publish \"pipelined\": \"global\""));
  }
  return errors.status();
}

}  // namespace agg
