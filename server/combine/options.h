// What a job asks of the combination: plain values, validated once.
#ifndef AGG_SERVER_COMBINE_OPTIONS_H_
#define AGG_SERVER_COMBINE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/combine/combination_rule.h"
#include "server/combine/outliers.h"
#include "server/combine/rule_table.h"

namespace agg {

enum class StepScale : uint8_t { kNone, kLinear, kSqrt, kAdascale, kAdamscale };
enum class Averaging : uint8_t { kDebiased, kPaper, kLagged };
// What `smoothing` is one factor of: a round, or a baseline batch.
enum class SmoothingPer : uint8_t { kRound, kBaselineBatch };
// Whose gain multiplies a learning rate: the model's, or the tensor group's.
enum class GainScope : uint8_t { kGlobal, kPerGroup };
enum class ScheduleKind : uint8_t {
  kConstant,
  kMultistep,
  kExponential,
  kPolynomial,
  kCosine,
  kInverseSqrt
};

// Names as in flags, configs and metrics: "per_tensor", "global"; "none",
// "linear", "sqrt", "adascale", "adamscale"; and so on. (Those of rules are in
// rule_table.h.)
absl::string_view ScopeName(Scope scope);
absl::string_view StepScaleName(StepScale scale);
absl::string_view AdaconsRescaleName(AdaconsRescale rescale);
absl::string_view AdaconsUnsortName(AdaconsUnsort unsort);
absl::string_view OutlierActionName(OutlierAction action);

// INVALID_ARGUMENT `field is "name"; allowed: ...` for an unknown name.
absl::StatusOr<Scope> ParseScope(absl::string_view field,
                                 absl::string_view name);
absl::StatusOr<StepScale> ParseStepScale(absl::string_view field,
                                         absl::string_view name);
absl::StatusOr<AdaconsRescale> ParseAdaconsRescale(absl::string_view field,
                                                   absl::string_view name);
absl::StatusOr<AdaconsUnsort> ParseAdaconsUnsort(absl::string_view field,
                                                 absl::string_view name);
absl::StatusOr<OutlierAction> ParseOutlierAction(absl::string_view field,
                                                 absl::string_view name);
absl::StatusOr<Averaging> ParseAveraging(absl::string_view field,
                                         absl::string_view name);
absl::StatusOr<SmoothingPer> ParseSmoothingPer(absl::string_view field,
                                               absl::string_view name);
absl::StatusOr<GainScope> ParseGainScope(absl::string_view field,
                                         absl::string_view name);
absl::StatusOr<ScheduleKind> ParseScheduleKind(absl::string_view field,
                                               absl::string_view name);

// What a job may choose about the rule external.
struct ExternalOptions {
  // Names the rule to its process: a job may have several.
  std::string name = "external";
  // Takes its place in a round without an answer; it keeps no state.
  const Rule* fallback = &DefaultRule();  // never null
  double timeout_seconds = 5.0;           // how long a round waits for it, > 0
};

struct RuleOptions {
  const Rule* rule = &DefaultRule();  // never null
  Scope scope = DefaultRule().default_scope;
  // Limit above which the Gram is made again, compensated
  // (server/combine/README.md 3.5); rules without kMeasuresCancellation do not
  // look at it.
  double kappa_limit = 1e10;
  AdaconsOptions adacons;
  KrumOptions krum;
  GeometricMedianOptions geometric_median;
  ExternalOptions external;
};

struct StepScaleOptions {
  StepScale kind = StepScale::kNone;
  Averaging averaging = Averaging::kDebiased;
  bool clip_before_average = true;  // fairscale; false is AdaptDL's order
  // EMA factor in [0, 1); negative takes max(1 - C/1000, 0), C the round's
  // number of micro-gradients. Per kBaselineBatch a round of N baseline batches
  // has the factor smoothing^N (AdaptDL, with 0.999).
  double smoothing = -1.0;
  SmoothingPer smoothing_per = SmoothingPer::kRound;
  double variance_floor = 1e-6;  // absolute, as in the paper
  double relative_floor = 0.0;   // times the mean squared norm; 0 is off
  // Examples of one unit of the baseline batch; 0: every row counts as its
  // accumulation (S = sum of accumulation). Else n_i = examples_i / this.
  double baseline_examples = 0.0;
  // Multiply the learning rate of rules that are not means, too (refused
  // otherwise, server/combine/README.md 5.6).
  bool force = false;
  // kPerGroup: averages, gain and learning rate for each of `groups`, the names
  // of the job's tensor groups; the first one is "", of tensors in no group.
  GainScope gain_scope = GainScope::kGlobal;
  std::vector<std::string> groups;
};

// Evaluated at t = tau (adascale, adamscale) or the version.
struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::kConstant;
  double learning_rate = 0.0;        // > 0
  double warmup_steps = 0.0;         // linear from warmup_start to the rate
  double warmup_start_factor = 0.0;  // of the rate at t = 0, [0, 1]
  std::vector<double> boundaries;    // multistep, ascending
  double gamma = 0.1;                // multistep, exponential
  double decay_steps = 0.0;          // exponential, polynomial, cosine
  double final_factor = 0.0;         // polynomial, cosine: of learning_rate
  double power = 1.0;                // polynomial
};

struct CombineOptions {
  RuleOptions rule;
  std::vector<RuleOptions> shadow_rules;
  OutlierOptions outliers;
  StepScaleOptions step_scale;
  ScheduleOptions schedule;
  double clip_norm = 0.0;  // of the combined gradient over all tensors; 0 off
  // The job ends once tau >= this (T_SI); 0: never. Without adascale or
  // adamscale tau counts rounds.
  double scale_invariant_iterations = 0.0;
};

// Whether an external rule may have this name: [A-Za-z0-9_.-]{1,64}.
bool IsExternalName(absl::string_view name);

// INVALID_ARGUMENT with a line for each bad field, `combination.adacons.beta is
// 1; allowed: in [0, 1)`: its path in proto/config.proto, its value and what is
// allowed.
absl::Status ValidateCombineOptions(const CombineOptions& options);

// Whether the combination allows each tensor to be published by itself (P43).
// Shadow rules are computed at the end, and may be any but external ones.
// INVALID_ARGUMENT naming each field by which a tensor's result would depend on
// other tensors, its value, and what a pipelined job allows: the rule's scope
// and state, outliers, clip_norm, step_scale.
absl::Status CheckPipelining(const CombineOptions& options);

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_OPTIONS_H_
