// What changes between two rounds, and a recovery must not forget (P37): that
// the job has finished, rules that operators have set, and whom they have
// evicted. Pure.
#ifndef AGG_SERVER_COORDINATOR_JOB_FACTS_H_
#define AGG_SERVER_COORDINATOR_JOB_FACTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/combine/options.h"
#include "server/coordinator/rule_change.h"
#include "server/round/recovery.h"

namespace agg {

// A session that an operator has ended: it never counts again.
struct EvictedSession {
  uint64_t session = 0;
  std::string reason;  // what its calls get, with ABORTED
};
// Number of evicted sessions that are kept: the newest ones.
inline constexpr size_t kMaxEvictedSessions = 256;

// Adds those of `more` that `evicted` lacks, up to kMaxEvictedSessions.
void AddEvicted(const std::vector<EvictedSession>& more,
                std::vector<EvictedSession>* evicted);

struct JobChanges {
  bool finished = false;
  bool failed = false;  // it has finished by giving up
  std::string end_reason;
  // Rule in effect; nothing: as configured.
  std::optional<RuleChange> rule;
  // Rule from round next_round on; nothing: as now.
  std::optional<RuleChange> next_rule;
  uint64_t next_round = 0;
  std::vector<EvictedSession> evicted;  // oldest first
};

// What holds after a rewind (P37): how the job stood when the checkpoint was
// taken, but what operators were told holds on, which is the newest rule, from
// its own round on, and every eviction.
JobChanges AfterRewind(const JobChanges& sealed, const JobChanges& newest);

// One line of JSON; "" if nothing has changed.
std::string JobChangesText(const JobChanges& changes);
// Reads back what JobChangesText has made. DATA_LOSS: not JSON;
// INVALID_ARGUMENT: a line for each field that is missing or of another type.
absl::StatusOr<JobChanges> ParseJobChanges(absl::string_view text);

// Facts with their place in the order, for a checkpoint's manifest: one line of
// JSON. "": facts that were never set. ParseFacts has ParseJobChanges' errors.
std::string FactsText(const JobFacts& facts);
absl::StatusOr<JobFacts> ParseFacts(absl::string_view text);

// The change that makes any combination `options`, as far as changes can.
RuleChange ChangeTo(const CombineOptions& options);

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_JOB_FACTS_H_
