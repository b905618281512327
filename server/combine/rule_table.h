// The table of combination rules: the one place that lists them. Configs,
// defaults, flags, completion, error texts, metrics and tests read it.
#ifndef AGG_SERVER_COMBINE_RULE_TABLE_H_
#define AGG_SERVER_COMBINE_RULE_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/combine/combination_rule.h"

namespace agg {

// What one set of coefficients is for: a tensor, or all tensors together.
enum class Scope : uint8_t { kPerTensor, kGlobal };

// What others must know about a rule; a sum of these.
enum RuleTrait : uint32_t {
  kNoTraits = 0,
  // A mean of the rows: AdaScale's gain may multiply its learning rate.
  kIsMean = 1 << 0,
  // Cancellation (RuleResult::kappa) can spoil its coefficients; above the
  // job's limit the round repeats it on a compensated Gram matrix.
  kMeasuresCancellation = 1 << 1,
  // It is Horovod's Adasum on plain halves. Its norm is the one that
  // orthogonality is defined by, so that need not be computed a second time.
  kIsPlainAdasum = 1 << 2,
  // Combine reads and writes RuleState. Without it the state stays empty.
  kKeepsState = 1 << 3,
  // It reads RuleInput::adacons; a config may set `adacons` only for it.
  kTakesAdaconsOptions = 1 << 4,
  // It reads RuleInput::krum; a config may set `krum` only for it, and
  // `krum.selected` only with kSelectsSeveral.
  kTakesKrumOptions = 1 << 5,
  kSelectsSeveral = 1 << 6,
  // It reads RuleInput::geometric_median; a config may set `geometric_median`
  // only for it.
  kTakesGeometricMedianOptions = 1 << 7,
  // Its coefficients come from a process beside the job (external.h), and with
  // them RuleState::bytes. A config may set `external` only for it.
  kIsExternal = 1 << 8,
};

// One line of the table.
struct Rule {
  absl::string_view name;  // in configs, flags, metrics and logs
  Scope default_scope;
  uint32_t traits;
  absl::string_view summary;  // one sentence for people, without a full stop
  std::unique_ptr<CombinationRule> (*make)();  // never null

  bool Has(RuleTrait trait) const { return (traits & trait) != 0; }
};

// All rules, in the order in which texts list them. Valid for ever; a rule is
// known by the address of its line.
absl::Span<const Rule> Rules();

// The rule with this name, or null.
const Rule* FindRule(absl::string_view name);

// What a job gets that names no rule: "mean".
const Rule& DefaultRule();

// All names, with `separator` between them: for help and completion.
std::string RuleNames(absl::string_view separator);

// The names of the rules with this trait, for error texts: `"mean" or "x"`.
std::string NamesOfRulesWith(RuleTrait trait);

// INVALID_ARGUMENT `field is "name"; allowed: "sum", ...` for an unknown name.
absl::StatusOr<const Rule*> ParseRule(absl::string_view field,
                                      absl::string_view name);

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_RULE_TABLE_H_
