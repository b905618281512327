#include "server/combine/options.h"

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

namespace agg {
namespace {

template <typename Enum>
struct Name {
  Enum value;
  absl::string_view name;
};

constexpr Name<Rule> kRules[] = {
    {Rule::kSum, "sum"},
    {Rule::kMean, "mean"},
    {Rule::kWeightedMean, "weighted_mean"},
    {Rule::kUnitMean, "unit_mean"},
    {Rule::kAdasum, "adasum"},
    {Rule::kAdasumCounted, "adasum_counted"},
    {Rule::kAdacons, "adacons"},
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
constexpr Name<Averaging> kAveragings[] = {
    {Averaging::kDebiased, "debiased"},
    {Averaging::kPaper, "paper"},
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
                           absl::string_view what, absl::string_view name) {
  std::vector<std::string> allowed;
  for (const Name<Enum>& entry : names) {
    if (entry.name == name) return entry.value;
    allowed.push_back(absl::StrCat("\"", entry.name, "\""));
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown ", what, " \"", name,
                                                 "\": must be one of ",
                                                 absl::StrJoin(allowed, ", ")));
}

// One number's check: `ok` decides, the message says what is allowed.
absl::Status Check(bool ok, absl::string_view field, double value,
                   absl::string_view allowed) {
  if (ok) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %g: must be %s", field, value, allowed));
}

bool IsNonNegative(double value) {
  return std::isfinite(value) && value >= 0.0;
}

bool IsPositive(double value) { return std::isfinite(value) && value > 0.0; }

absl::Status ValidateRule(const RuleOptions& rule, absl::string_view path) {
  absl::Status status =
      Check(rule.kappa_limit >= 1.0, absl::StrCat(path, ".kappa_limit"),
            rule.kappa_limit, ">= 1");
  const double beta = rule.adacons.beta;
  status.Update(Check(beta >= 0.0 && beta < 1.0,
                      absl::StrCat(path, ".adacons.beta"), beta, "in [0, 1)"));
  status.Update(Check(IsPositive(rule.adacons.epsilon),
                      absl::StrCat(path, ".adacons.epsilon"),
                      rule.adacons.epsilon, "finite and > 0"));
  return status;
}

absl::Status ValidateStepScale(const StepScaleOptions& scale, Rule rule) {
  absl::Status status =
      Check(scale.smoothing < 1.0, "step_scale.smoothing", scale.smoothing,
            "< 1 (negative: max(1 - N/1000, 0))");
  status.Update(Check(IsNonNegative(scale.variance_floor),
                      "step_scale.variance_floor", scale.variance_floor,
                      "finite and >= 0"));
  status.Update(Check(IsNonNegative(scale.relative_floor),
                      "step_scale.relative_floor", scale.relative_floor,
                      "finite and >= 0"));
  status.Update(Check(IsNonNegative(scale.baseline_examples),
                      "step_scale.baseline_examples", scale.baseline_examples,
                      "finite and >= 0 (0: count by accumulation)"));
  const bool measures_gain =
      scale.kind == StepScale::kAdascale || scale.kind == StepScale::kAdamscale;
  const bool is_mean = rule == Rule::kMean || rule == Rule::kWeightedMean;
  if (measures_gain && !is_mean && !scale.force) {
    status.Update(absl::InvalidArgumentError(absl::StrFormat(
        "step_scale.kind is \"%s\" with combination.rule \"%s\": the gain is "
        "that of a mean and would scale twice; must be used with \"mean\" or "
        "\"weighted_mean\", or with step_scale.force: true",
        StepScaleName(scale.kind), RuleName(rule))));
  }
  return status;
}

absl::Status ValidateBoundaries(const std::vector<double>& boundaries) {
  if (boundaries.empty()) {
    return absl::InvalidArgumentError(
        "learning_rate.boundaries is empty: \"multistep\" needs at least one");
  }
  double previous = 0.0;
  for (size_t i = 0; i < boundaries.size(); ++i) {
    absl::Status status =
        Check(IsPositive(boundaries[i]) && boundaries[i] > previous,
              absl::StrCat("learning_rate.boundaries[", i, "]"), boundaries[i],
              "> 0, finite and greater than the one before");
    if (!status.ok()) return status;
    previous = boundaries[i];
  }
  return absl::OkStatus();
}

absl::Status ValidateSchedule(const ScheduleOptions& schedule) {
  absl::Status status =
      Check(IsPositive(schedule.learning_rate), "learning_rate.rate",
            schedule.learning_rate, "finite and > 0");
  status.Update(Check(IsNonNegative(schedule.warmup_steps),
                      "learning_rate.warmup_steps", schedule.warmup_steps,
                      "finite and >= 0"));
  const double start = schedule.warmup_start_factor;
  status.Update(Check(start >= 0.0 && start <= 1.0,
                      "learning_rate.warmup_start_factor", start, "in [0, 1]"));
  status.Update(Check(IsPositive(schedule.gamma), "learning_rate.gamma",
                      schedule.gamma, "finite and > 0"));
  status.Update(Check(IsNonNegative(schedule.final_factor),
                      "learning_rate.final_factor", schedule.final_factor,
                      "finite and >= 0"));
  status.Update(Check(IsPositive(schedule.power), "learning_rate.power",
                      schedule.power, "finite and > 0"));
  const bool decays = schedule.kind == ScheduleKind::kExponential ||
                      schedule.kind == ScheduleKind::kPolynomial ||
                      schedule.kind == ScheduleKind::kCosine;
  if (decays) {
    status.Update(Check(IsPositive(schedule.decay_steps),
                        "learning_rate.decay_steps", schedule.decay_steps,
                        "finite and > 0 for this schedule"));
  }
  if (schedule.kind == ScheduleKind::kMultistep) {
    status.Update(ValidateBoundaries(schedule.boundaries));
  }
  return status;
}

}  // namespace

absl::string_view RuleName(Rule rule) { return FindName<Rule>(kRules, rule); }

absl::string_view ScopeName(Scope scope) {
  return FindName<Scope>(kScopes, scope);
}

absl::string_view StepScaleName(StepScale scale) {
  return FindName<StepScale>(kStepScales, scale);
}

absl::StatusOr<Rule> ParseRule(absl::string_view name) {
  return Parse<Rule>(kRules, "rule", name);
}

absl::StatusOr<Scope> ParseScope(absl::string_view name) {
  return Parse<Scope>(kScopes, "scope", name);
}

absl::StatusOr<StepScale> ParseStepScale(absl::string_view name) {
  return Parse<StepScale>(kStepScales, "step scale", name);
}

absl::StatusOr<AdaconsRescale> ParseAdaconsRescale(absl::string_view name) {
  return Parse<AdaconsRescale>(kRescales, "adacons rescale", name);
}

absl::StatusOr<Averaging> ParseAveraging(absl::string_view name) {
  return Parse<Averaging>(kAveragings, "averaging", name);
}

absl::StatusOr<ScheduleKind> ParseScheduleKind(absl::string_view name) {
  return Parse<ScheduleKind>(kSchedules, "schedule", name);
}

Scope DefaultScope(Rule rule) {
  return rule == Rule::kAdacons ? Scope::kGlobal : Scope::kPerTensor;
}

absl::Status ValidateCombineOptions(const CombineOptions& options) {
  absl::Status status = ValidateRule(options.rule, "combination");
  for (size_t i = 0; i < options.shadow_rules.size(); ++i) {
    status.Update(ValidateRule(options.shadow_rules[i],
                               absl::StrCat("shadow_rules[", i, "]")));
  }
  status.Update(ValidateStepScale(options.step_scale, options.rule.rule));
  status.Update(ValidateSchedule(options.schedule));
  status.Update(Check(IsNonNegative(options.clip_norm), "clip_norm",
                      options.clip_norm, "finite and >= 0 (0: off)"));
  status.Update(Check(IsNonNegative(options.scale_invariant_iterations),
                      "scale_invariant_iterations",
                      options.scale_invariant_iterations,
                      "finite and >= 0 (0: no end)"));
  return status;
}

}  // namespace agg
