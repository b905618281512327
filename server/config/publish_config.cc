// Apart from options.cc since it is about what many fields are together.
#include "server/config/publish_config.h"

#include "absl/strings/str_cat.h"
#include "server/base/dcheck.h"
#include "server/base/field_error.h"
#include "server/combine/options.h"

namespace agg {

// max_staleness is a field that proto/config.proto keeps for asynchronous jobs:
// set, it would promise what the server does not do.
absl::Status CheckCloseRule(const v1::JobConfig& config) {
  AGG_DCHECK(!config.publish().empty());
  FieldErrors errors;
  errors.Add(CheckField(
      config.quorum() >= 0 && config.quorum() <= config.max_workers(), "quorum",
      config.quorum(),
      absl::StrCat("0 (all members) to max_workers (", config.max_workers(),
                   ")")));
  errors.Add(CheckField(config.max_staleness() == 0, "max_staleness",
                        config.max_staleness(), "0 (synchronous)"));
  return errors.status();
}

absl::StatusOr<bool> MakePipelined(const v1::JobConfig& config,
                                   const CombineOptions& combine,
                                   const OptimizerOptions& optimizer) {
  AGG_DCHECK(!config.publish().empty());
  if (config.publish() == "atomic") return false;
  if (config.publish() != "pipelined") {
    return FieldError("publish", Quoted(config.publish()),
                      "\"atomic\", \"pipelined\"");
  }
  FieldErrors errors;
  errors.Add(CheckPipelining(combine));
  if (OptimizerNeedsNorms(optimizer.kind)) {
    errors.Add(FieldError("optimizer.kind", Quoted(config.optimizer().kind()),
                          "with publish \"pipelined\": one without a trust "
                          "ratio"));
  }
  if (config.replication() != "none") {
    errors.Add(FieldError("replication", Quoted(config.replication()),
                          "with publish \"pipelined\": \"none\""));
  }
  if (config.backend() != "cpu") {
    errors.Add(FieldError("backend", Quoted(config.backend()),
                          "with publish \"pipelined\": \"cpu\""));
  }
  errors.Add(CheckField(config.quorum() == 0, "quorum", config.quorum(),
                        "with publish \"pipelined\": 0"));
  errors.Add(CheckField(config.round_timeout_seconds() == 0.0,
                        "round_timeout_seconds", config.round_timeout_seconds(),
                        "with publish \"pipelined\": 0"));
  errors.Add(CheckField(config.round_timeout_mad() == 0.0, "round_timeout_mad",
                        config.round_timeout_mad(),
                        "with publish \"pipelined\": 0"));
  if (!errors.empty()) return errors.status();
  return true;
}

}  // namespace agg
