// Shadow rules are computed at the end, and may be any.
#include "server/combine/pipelining.h"

#include <string>

#include "server/base/field_error.h"
#include "server/combine/rule_table.h"

namespace agg {

absl::Status CheckPipelining(const CombineOptions& options) {
  FieldErrors errors;
  const Rule& rule = *options.rule.rule;
  if (rule.Has(kKeepsState)) {
    std::string allowed;
    for (const Rule& other : Rules()) {
      if (other.Has(kKeepsState)) continue;
      allowed += (allowed.empty() ? "" : ", ") + Quoted(other.name);
    }
    errors.Add(FieldError("combination.rule", Quoted(rule.name),
                          "with publish \"pipelined\": " + allowed));
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
  return errors.status();
}

}  // namespace agg
