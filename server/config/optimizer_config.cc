// Which optimizers there are, what they use and by default: one table,
// kernels/optimizer_table.h. Here is only what a value may be.
#include "server/config/optimizer_config.h"

#include <google/protobuf/descriptor.h>

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "kernels/optimizer_table.h"
#include "server/base/dcheck.h"
#include "server/base/field_error.h"

namespace agg {
namespace {

// Null if there is no optimizer of that name.
const OptimizerLine* FindOptimizer(absl::string_view name) {
  for (const OptimizerLine& line : kOptimizers) {
    if (name == line.name) return &line;
  }
  return nullptr;
}

bool Uses(const v1::OptimizerConfig& config, const std::string& field) {
  const OptimizerLine* line = FindOptimizer(config.kind());
  return line != nullptr && line->Uses(field.c_str());
}

absl::Status CheckKind(const std::string& name) {
  if (FindOptimizer(name) != nullptr) return absl::OkStatus();
  const std::string allowed = absl::StrJoin(
      kOptimizers, ", ", [](std::string* out, const OptimizerLine& line) {
        absl::StrAppend(out, Quoted(line.name));
      });
  return FieldError("optimizer.kind", Quoted(name), allowed);
}

void CheckUsed(const v1::OptimizerConfig& config, FieldErrors* errors) {
  std::vector<const google::protobuf::FieldDescriptor*> set;
  config.GetReflection()->ListFields(config, &set);
  for (const auto* field : set) {
    if (field->name() != "kind" && !Uses(config, field->name())) {
      errors->Add(
          FieldError(absl::StrCat("optimizer.", field->name()), "set",
                     absl::StrCat("to be left out, kind ",
                                  Quoted(config.kind()), " does not use it")));
    }
  }
}

// The optimizers compute with floats. A value that is in range as a double may
// round to a bound that is not (0.99999999 to 1, 1e-46 to 0, 1e39 to infinity),
// and would make parameters that are not numbers.
double AsFloat(double value) { return static_cast<float>(value); }

void CheckValues(const v1::OptimizerConfig& c, FieldErrors* errors) {
  errors->Add(CheckField(c.momentum() >= 0.0 && AsFloat(c.momentum()) < 1.0,
                         "optimizer.momentum", c.momentum(),
                         "0 <= momentum < 1"));
  errors->Add(CheckField(c.beta1() >= 0.0 && AsFloat(c.beta1()) < 1.0,
                         "optimizer.beta1", c.beta1(), "0 <= beta1 < 1"));
  errors->Add(CheckField(c.beta2() >= 0.0 && AsFloat(c.beta2()) < 1.0,
                         "optimizer.beta2", c.beta2(), "0 <= beta2 < 1"));
  errors->Add(
      CheckField(!c.has_epsilon() || IsFinitePositive(AsFloat(c.epsilon())),
                 "optimizer.epsilon", c.epsilon(), "finite, > 0"));
  errors->Add(CheckField(IsFiniteAtLeast(AsFloat(c.weight_decay()), 0.0),
                         "optimizer.weight_decay", c.weight_decay(),
                         "finite, >= 0"));
  errors->Add(CheckField(!c.has_trust_coefficient() ||
                             IsFinitePositive(AsFloat(c.trust_coefficient())),
                         "optimizer.trust_coefficient", c.trust_coefficient(),
                         "finite, > 0"));
  errors->Add(CheckField(IsFiniteAtLeast(AsFloat(c.initial_accumulator()), 0.0),
                         "optimizer.initial_accumulator",
                         c.initial_accumulator(), "finite, >= 0"));
  if (c.nesterov() && c.momentum() == 0.0) {
    errors->Add(
        FieldError("optimizer.nesterov", "true", "false, or a momentum > 0"));
  }
}

// The errors of one group but for its name.
void CheckGroup(const v1::GroupConfig& group, const std::string& path,
                const v1::OptimizerConfig& optimizer, FieldErrors* errors) {
  errors->Add(
      CheckField(IsFiniteAtLeast(AsFloat(group.learning_rate_factor()), 0.0),
                 absl::StrCat(path, ".learning_rate_factor"),
                 group.learning_rate_factor(), "finite, >= 0"));
  const std::string decay_path = absl::StrCat(path, ".weight_decay");
  errors->Add(CheckField(IsFiniteAtLeast(AsFloat(group.weight_decay()), 0.0),
                         decay_path, group.weight_decay(), "finite, >= 0"));
  if (!group.has_weight_decay()) return;
  if (group.no_decay()) {
    errors->Add(
        FieldError(decay_path, "set", "to be left out with no_decay: true"));
  } else if (FindOptimizer(optimizer.kind()) != nullptr &&
             !Uses(optimizer, "weight_decay")) {
    errors->Add(
        FieldError(decay_path, "set",
                   absl::StrCat("to be left out, optimizer ",
                                Quoted(optimizer.kind()), " does not use it")));
  }
}

}  // namespace

void CompleteOptimizer(v1::OptimizerConfig* config) {
  if (config->kind().empty()) config->set_kind("sgd");
  if (Uses(*config, "beta1") && !config->has_beta1()) {
    config->set_beta1(kDefaultBeta1);
  }
  if (Uses(*config, "beta2") && !config->has_beta2()) {
    config->set_beta2(kDefaultBeta2);
  }
  if (Uses(*config, "epsilon") && !config->has_epsilon()) {
    config->set_epsilon(FindOptimizer(config->kind())->default_epsilon);
  }
  if (Uses(*config, "trust_coefficient") && !config->has_trust_coefficient()) {
    config->set_trust_coefficient(kDefaultTrustCoefficient);
  }
}

void CompleteGroup(v1::GroupConfig* group) {
  if (!group->has_learning_rate_factor()) {
    group->set_learning_rate_factor(GroupOptions().learning_rate_factor);
  }
}

absl::StatusOr<OptimizerOptions> MakeOptimizerOptions(
    const v1::OptimizerConfig& config) {
  AGG_DCHECK(!config.kind().empty());
  FieldErrors errors;
  errors.Add(CheckKind(config.kind()));
  // Nothing is known of what another kind uses.
  if (errors.empty()) CheckUsed(config, &errors);
  CheckValues(config, &errors);
  if (!errors.empty()) return errors.status();
  OptimizerOptions options;
  options.kind = FindOptimizer(config.kind())->kind;
  options.momentum = static_cast<float>(config.momentum());
  options.nesterov = config.nesterov();
  if (config.has_beta1()) options.beta1 = static_cast<float>(config.beta1());
  if (config.has_beta2()) options.beta2 = static_cast<float>(config.beta2());
  if (config.has_epsilon()) {
    options.epsilon = static_cast<float>(config.epsilon());
  }
  if (config.has_trust_coefficient()) {
    options.trust_coefficient = static_cast<float>(config.trust_coefficient());
  }
  options.initial_accumulator =
      static_cast<float>(config.initial_accumulator());
  return options;
}

absl::StatusOr<std::vector<GroupOptions>> MakeGroupOptions(
    const v1::JobConfig& config) {
  FieldErrors errors;
  std::vector<GroupOptions> groups;
  std::set<std::string> names;
  for (int i = 0; i < config.groups_size(); ++i) {
    const v1::GroupConfig& group = config.groups(i);
    const std::string path = absl::StrCat("groups[", i, "]");
    if (group.name().empty() || !names.insert(group.name()).second) {
      errors.Add(FieldError(absl::StrCat(path, ".name"), Quoted(group.name()),
                            "a name that no other group has"));
    }
    CheckGroup(group, path, config.optimizer(), &errors);
    const double decay = group.no_decay() ? 0.0
                         : group.has_weight_decay()
                             ? group.weight_decay()
                             : config.optimizer().weight_decay();
    groups.push_back({group.name(),
                      static_cast<float>(group.learning_rate_factor()),
                      static_cast<float>(decay)});
  }
  if (!errors.empty()) return errors.status();
  return groups;
}

}  // namespace agg
