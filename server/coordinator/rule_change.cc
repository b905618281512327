// Applies the change to a copy of the options and has it validated as a
// configuration would be, so that both have the same errors.
#include "server/coordinator/rule_change.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/base/field_error.h"
#include "server/combine/rule_table.h"

namespace agg {
namespace {

bool IsEmpty(const RuleChange& change) {
  return !change.rule.has_value() && !change.scope.has_value() &&
         !change.step_scale.has_value() &&
         !change.force_step_scale.has_value() &&
         !change.learning_rate.has_value() &&
         !change.adacons_beta.has_value() &&
         !change.adacons_rescale.has_value() &&
         !change.krum_byzantine_workers.has_value() &&
         !change.krum_selected.has_value();
}

// An option that only rules with this trait have, and that is set.
absl::Status CheckTrait(const Rule& rule, RuleTrait trait,
                        absl::string_view field, const std::string& value) {
  if (rule.Has(trait)) return absl::OkStatus();
  return FieldError(field, value,
                    absl::StrCat("with rule ", NamesOfRulesWith(trait),
                                 "; the rule is ", Quoted(rule.name)));
}

absl::Status ChangeKrum(const RuleChange& change, RuleOptions* options) {
  absl::Status status;
  if (change.krum_byzantine_workers.has_value()) {
    status.Update(CheckTrait(*options->rule, kTakesKrumOptions,
                             "krum_byzantine_workers",
                             absl::StrCat(*change.krum_byzantine_workers)));
    options->krum.byzantine_workers = *change.krum_byzantine_workers;
  }
  if (change.krum_selected.has_value()) {
    status.Update(CheckTrait(*options->rule, kSelectsSeveral, "krum_selected",
                             absl::StrCat(*change.krum_selected)));
    options->krum.selected = *change.krum_selected;
  }
  return status;
}

absl::Status ChangeAdacons(const RuleChange& change, RuleOptions* options) {
  absl::Status status;
  if (change.adacons_beta.has_value()) {
    status.Update(CheckTrait(*options->rule, kTakesAdaconsOptions,
                             "adacons_beta",
                             absl::StrCat(*change.adacons_beta)));
    options->adacons.beta = *change.adacons_beta;
  }
  if (!change.adacons_rescale.has_value()) return status;
  status.Update(CheckTrait(*options->rule, kTakesAdaconsOptions,
                           "adacons_rescale", Quoted(*change.adacons_rescale)));
  if (!status.ok()) return status;
  const absl::StatusOr<AdaconsRescale> rescale =
      ParseAdaconsRescale("adacons_rescale", *change.adacons_rescale);
  if (!rescale.ok()) return rescale.status();
  options->adacons.rescale = *rescale;
  return status;
}

void TakeRule(const Rule* rule, int32_t workers, RuleOptions* options) {
  if (rule != options->rule) options->scope = rule->default_scope;
  const auto is_new = [&](RuleTrait trait) {
    return rule->Has(trait) && !options->rule->Has(trait);
  };
  if (is_new(kTakesKrumOptions)) {
    options->krum.byzantine_workers = DefaultByzantineWorkers(workers);
  }
  if (is_new(kSelectsSeveral)) options->krum.selected = KrumOptions().selected;
  if (is_new(kTakesAdaconsOptions)) {
    // Epsilon is as configured: no change touches it.
    options->adacons.beta = AdaconsOptions().beta;
    options->adacons.rescale = AdaconsOptions().rescale;
  }
  options->rule = rule;
}

absl::Status ChangeRule(const RuleChange& change, int32_t workers,
                        RuleOptions* options) {
  if (change.rule.has_value()) {
    const absl::StatusOr<const Rule*> rule = ParseRule("rule", *change.rule);
    if (!rule.ok()) return rule.status();
    TakeRule(*rule, workers, options);
  }
  if (change.scope.has_value()) {
    const absl::StatusOr<Scope> scope = ParseScope("scope", *change.scope);
    if (!scope.ok()) return scope.status();
    options->scope = *scope;
  }
  absl::Status status = ChangeAdacons(change, options);
  status.Update(ChangeKrum(change, options));
  return status;
}

bool SameRule(const RuleOptions& a, const RuleOptions& b) {
  return a.rule == b.rule && a.scope == b.scope &&
         a.adacons.beta == b.adacons.beta &&
         a.adacons.epsilon == b.adacons.epsilon &&
         a.adacons.rescale == b.adacons.rescale;
}

}  // namespace

absl::StatusOr<CombineOptions> ChangedCombination(const CombineOptions& before,
                                                  const RuleChange& change,
                                                  int32_t workers) {
  if (IsEmpty(change)) {
    return absl::InvalidArgumentError(
        "nothing to change: must name a rule, scope, step_scale, "
        "learning_rate or an option of theirs");
  }
  CombineOptions after = before;
  absl::Status status = ChangeRule(change, workers, &after.rule);
  if (!status.ok()) return status;
  if (change.step_scale.has_value()) {
    const absl::StatusOr<StepScale> kind =
        ParseStepScale("step_scale", *change.step_scale);
    if (!kind.ok()) return kind.status();
    after.step_scale.kind = *kind;
  }
  if (change.force_step_scale.has_value()) {
    after.step_scale.force = *change.force_step_scale;
  }
  if (change.learning_rate.has_value()) {
    after.schedule.learning_rate = *change.learning_rate;
  }
  status = ValidateCombineOptions(after);
  if (!status.ok()) return status;
  return after;
}

CombinationNames NamesOf(const CombineOptions& options) {
  return {std::string(options.rule.rule->name),
          std::string(ScopeName(options.rule.scope)),
          std::string(StepScaleName(options.step_scale.kind))};
}

void CarryState(const CombineOptions& before, const CombineOptions& after,
                CombineState* state) {
  if (!SameRule(before.rule, after.rule)) state->rule.clear();
}

}  // namespace agg
