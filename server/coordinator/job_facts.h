// What changes between two rounds, and a recovery must not forget (P37): that
// the job has finished, and rules that operators have set. Pure.
#ifndef AGG_SERVER_COORDINATOR_JOB_FACTS_H_
#define AGG_SERVER_COORDINATOR_JOB_FACTS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/combine/options.h"
#include "server/coordinator/rule_change.h"
#include "server/round/recovery.h"

namespace agg {

struct JobChanges {
  bool finished = false;
  bool failed = false;  // it has finished by giving up
  std::string end_reason;
  // In effect; nothing: as configured.
  std::optional<RuleChange> rule;
  // From round next_round on; nothing: as now.
  std::optional<RuleChange> next_rule;
  uint64_t next_round = 0;
};

// One line of JSON; "" if nothing has changed.
std::string JobChangesText(const JobChanges& changes);
// The reverse. DATA_LOSS: not JSON; INVALID_ARGUMENT: a line for each field
// that is missing or of another type.
absl::StatusOr<JobChanges> ParseJobChanges(absl::string_view text);

// Facts with their place in the order, for a checkpoint's manifest: one line of
// JSON. "": facts that were never set. ParseFacts has ParseJobChanges' errors.
std::string FactsText(const JobFacts& facts);
absl::StatusOr<JobFacts> ParseFacts(absl::string_view text);

// The change that makes any combination `options`, as far as changes can.
RuleChange ChangeTo(const CombineOptions& options);

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_JOB_FACTS_H_
