// What a coordinator must not forget between two processes: all that decides
// the next rounds besides the shards' arrays. A text for checkpoints and for
// another process's memory, and back. Pure.
#ifndef AGG_SERVER_COORDINATOR_JOB_RECORD_H_
#define AGG_SERVER_COORDINATOR_JOB_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/combine/options.h"
#include "server/combine/round_input.h"
#include "server/coordinator/kept_outcomes.h"

namespace agg {

// Describes the job at the version that the last round has published.
struct JobRecord {
  uint64_t history = 0;  // the epoch of the last seed or rewind
  // The epoch of the last seed, or of a person's word to go on from another
  // checkpoint: where the job's line begins. 0: not known (an older release).
  uint64_t line = 0;
  bool started = false;   // enough workers have been in once
  int64_t num_steps = 0;  // applied, for the optimizer's bias correction
  // The combination that has left `state`: rules, scopes, AdaCons' options. The
  // configuration decides the rest.
  RuleOptions rule;
  std::vector<RuleOptions> shadow_rules;
  CombineState state;
  std::vector<RecordedOutcome> outcomes;  // oldest first
  std::map<int32_t, UsedRow> used_rows;   // by rank
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
// running job (rule_change.h). Nothing survives of a rule that had another
// number of segments than this job has.
CombineState StateToGoOnWith(const JobRecord& record, const CombineOptions& now,
                             size_t num_tensors);

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_JOB_RECORD_H_
