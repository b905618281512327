// The lines of the table. A new rule is one line here;
// tests/lint/newcomer.py watches that it stays so.
#include "server/combine/rule_table.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/field_error.h"
#include "server/combine/adacons.h"
#include "server/combine/adasum.h"
#include "server/combine/external.h"
#include "server/combine/geometric_median.h"
#include "server/combine/krum.h"
#include "server/combine/means.h"

namespace agg {
namespace {

template <typename T>
std::unique_ptr<CombinationRule> Make() {
  return std::make_unique<T>();
}

// Name, default scope, traits, summary, object.
constexpr Rule kRules[] = {
    {"sum", Scope::kPerTensor, kNoTraits, "the sum of the rows", Make<SumRule>},
    {"mean", Scope::kPerTensor, kIsMean, "the mean of the rows",
     Make<MeanRule>},
    {"weighted_mean", Scope::kPerTensor, kIsMean,
     "the mean weighted by the rows' numbers of examples",
     Make<WeightedMeanRule>},
    {"unit_mean", Scope::kPerTensor, kNoTraits,
     "the mean of the rows, each scaled to length 1", Make<UnitMeanRule>},
    {"adasum", Scope::kPerTensor, kMeasuresCancellation | kIsPlainAdasum,
     "the sum of orthogonal rows, the mean of parallel ones, else in between",
     Make<AdasumRule>},
    {"adasum_counted", Scope::kPerTensor, kMeasuresCancellation,
     "adasum, with equal weights for parallel rows whatever their number",
     Make<AdasumCountedRule>},
    {"adacons", Scope::kGlobal,
     kMeasuresCancellation | kKeepsState | kTakesAdaconsOptions,
     "unit gradients weighted by their agreement with the mean",
     Make<AdaconsRule>},
    {"krum", Scope::kGlobal, kMeasuresCancellation | kTakesKrumOptions,
     "the one row that is nearest to its nearest others", Make<KrumRule>},
    {"multi_krum", Scope::kGlobal,
     kMeasuresCancellation | kTakesKrumOptions | kSelectsSeveral,
     "the mean of the rows that krum likes best", Make<MultiKrumRule>},
    {"geometric_median", Scope::kGlobal, kTakesGeometricMedianOptions,
     "the point with the least sum of distances to the rows",
     Make<GeometricMedianRule>},
    {"external", Scope::kGlobal, kIsExternal,
     "weights that a process beside the job decides, else those of a fallback",
     Make<ExternalRule>},
};

}  // namespace

absl::Span<const Rule> Rules() { return kRules; }

const Rule* FindRule(absl::string_view name) {
  for (const Rule& rule : kRules) {
    if (rule.name == name) return &rule;
  }
  return nullptr;
}

const Rule& DefaultRule() { return *FindRule("mean"); }

std::string RuleNames(absl::string_view separator) {
  const auto name = [](std::string* out, const Rule& rule) {
    absl::StrAppend(out, rule.name);
  };
  return absl::StrJoin(Rules(), separator, name);
}

std::string NamesOfRulesWith(RuleTrait trait) {
  std::vector<std::string> names;
  for (const Rule& rule : kRules) {
    if (rule.Has(trait)) names.push_back(Quoted(rule.name));
  }
  return absl::StrJoin(names, " or ");
}

absl::StatusOr<const Rule*> ParseRule(absl::string_view field,
                                      absl::string_view name) {
  const Rule* const rule = FindRule(name);
  if (rule != nullptr) return rule;
  const auto quote = [](std::string* out, const Rule& allowed) {
    absl::StrAppend(out, Quoted(allowed.name));
  };
  return FieldError(field, Quoted(name), absl::StrJoin(Rules(), ", ", quote));
}

}  // namespace agg
