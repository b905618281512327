// What a coordinator must not forget between two processes: all that decides
// the next rounds besides the shards' arrays. A text for checkpoints and for
// another process's memory, and back. Pure.
#ifndef AGG_SERVER_COORDINATOR_JOB_RECORD_H_
#define AGG_SERVER_COORDINATOR_JOB_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/combine/decision.h"
#include "server/combine/options.h"
#include "server/coordinator/coordinator_types.h"
#include "server/round/combination_names.h"
#include "server/round/recovery.h"
#include "server/round/round_report.h"

namespace agg {

// Describes the job at the version that the last round has published.
struct JobRecord {
  uint64_t history = 0;  // the epoch of the last seed or rewind
  // The epoch of the last seed, or of a person's word to go on from another
  // checkpoint: where the job's line begins. 0: not known.
  uint64_t line = 0;
  bool started = false;  // enough workers have been in once
  // Applied since the optimizer's state was new, for its bias correction.
  int64_t num_steps = 0;
  // Baseline batches of the last applied round, where the optimizer's moments
  // begin anew with another number of them; 0: not known.
  double num_batches = 0.0;
  // The combination that has left `state`: rules, scopes, AdaCons' options. The
  // configuration decides the rest.
  RuleOptions rule;
  std::vector<RuleOptions> shadow_rules;
  CombineState state;
  std::vector<RoundResult> outcomes;     // oldest first
  std::map<int32_t, UsedRow> used_rows;  // by rank
};

// One line of JSON; equal records make equal texts. NaN and infinities are
// kept. Texts that are not UTF-8 get U+FFFD.
std::string JobRecordText(const JobRecord& record);
// Makes the text as above. If it has more than `max_bytes`, makes it again
// without what shadow rules remember, and sets *cut: they serve statistics
// alone.
std::string JobRecordText(JobRecord record, int64_t max_bytes, bool* cut);

// Reads back what JobRecordText has made. DATA_LOSS: not JSON;
// INVALID_ARGUMENT: a line for each field that is missing, of another type or
// out of range.
absl::StatusOr<JobRecord> ParseJobRecord(absl::string_view text);

// The state with which a job that is configured as `now` goes on: what a rule
// remembers survives if the rule is the same, as for a change of rules in a
// running job. Nothing survives of a rule that had another
// number of segments than this job has.
CombineState StateToGoOnWith(const JobRecord& record, const CombineOptions& now,
                             size_t num_tensors);

// Returns one report for each outcome of the record that is newer than
// `reported`, oldest first: for the round log, which is to name each version
// (P28), as their own may be lost with their coordinator. They have whose rows
// are in the version and why others are not, and no numbers. A session whose
// rank cannot be told any more is left out; its row has session 0 then. Pure.
std::vector<RoundReport> RestoredReports(const JobRecord& record,
                                         const VersionId& reported);

// Another way of combining, for a job that is running. What is not set stays as
// it is; `scope` beside another rule than before becomes that rule's default,
// and so does each option of a rule beside one that takes it where the one
// before did not. So nothing is remembered of a rule that is no longer in
// effect, which a restart would forget.
struct RuleChange {
  std::optional<std::string> rule;
  std::optional<std::string> scope;
  std::optional<std::string> step_scale;
  std::optional<bool> force_step_scale;
  std::optional<double> learning_rate;  // the schedule's
  std::optional<double> adacons_beta;
  std::optional<std::string> adacons_rescale;
  std::optional<std::string> adacons_unsort;
  std::optional<int32_t> krum_byzantine_workers;
  std::optional<int32_t> krum_selected;
};

// The answer to an accepted change.
struct RuleChangeResult {
  CombinationNames before;  // of the open round
  CombinationNames after;
  uint64_t first_round = 0;  // the first one that is combined in the new way
};

// INVALID_ARGUMENT as ValidateCombineOptions, and for an empty change, unknown
// names, and options of a rule without that rule. `workers`: the job's, for
// defaults.
absl::StatusOr<CombineOptions> ChangedCombination(const CombineOptions& before,
                                                  const RuleChange& change,
                                                  int32_t workers);

CombinationNames NamesOf(const CombineOptions& options);

// Makes `state`, left by rounds with `before`, that of a round with `after`:
//  - The rule's state (AdaCons' momentum) starts anew unless rule, scope and
//    AdaCons' options are the same: it belongs to this very rule.
//  - The averages of sigma2 and mu2, and tau, go on: they measure gradients and
//    progress, whatever the rule. Where the schedule is evaluated may move, as
//    adascale and adamscale do so at tau, the others at the version.
//  - Shadow rules do not change, and neither does their state.
void CarryState(const CombineOptions& before, const CombineOptions& after,
                CombineState* state);

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

// Names a worker's call of a reduction, however often it asks: a number that
// its client has drawn at its start, and which of the client's calls it is.
struct GiverCall {
  uint64_t giver = 0;
  uint64_t call = 0;
};

// The last reduction that was made (P51).
struct KeptReduction {
  std::vector<double> sums;
  std::vector<int32_t> ranks;  // whose values are in them, ascending
  std::vector<int32_t> left_out;
  // Has by rank the last call that was made, of those in `ranks` and of others.
  std::map<int32_t, GiverCall> last;
};

// What changes between two rounds, and a recovery must not forget (P37): that
// the job has finished, rules that operators have set, whom they have evicted,
// and the last reduction (P51).
struct JobChanges {
  bool finished = false;
  bool failed = false;  // it has finished by giving up
  std::string end_reason;
  // Rule in effect; nothing: as configured.
  std::optional<RuleChange> rule;
  // Rule from round next_round on; nothing: as now.
  std::optional<RuleChange> next_rule;
  uint64_t next_round = 0;
  std::vector<EvictedSession> evicted;             // oldest first
  std::shared_ptr<const KeptReduction> reduction;  // null: none
};

// What holds after a rewind (P37): how the job stood when the checkpoint was
// taken, but what operators were told holds on, which is the newest rule, from
// its own round on, and every eviction; and so does the last reduction, whose
// sums some workers have.
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

#endif  // AGG_SERVER_COORDINATOR_JOB_RECORD_H_
