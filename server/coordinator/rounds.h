// The seed and the rounds, as the coordinator's loop runs them.
#ifndef AGG_SERVER_COORDINATOR_ROUNDS_H_
#define AGG_SERVER_COORDINATOR_ROUNDS_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/coordinator/job_record.h"
#include "server/coordinator/restores.h"
#include "server/coordinator/round_reporter.h"
#include "server/coordinator/task_context.h"
#include "server/round/round_report.h"

namespace agg {

// Used by the loop.
class Rounds {
 public:
  // Both outlive it.
  Rounds(TaskContext* context, Restores* restores);

  // Each returns whether it did anything. Publishes a seed that is committed.
  bool SeedIfDue();
  // Ends a job that has been below its floor for too long (P2).
  bool FailIfDue();
  // Closes the open round if the close policy says so, and runs it; a round
  // that goes wave by wave (P43) is begun.
  bool RunIfDue();
  // Runs the next wave. Between two waves the loop goes on: members come and
  // go.
  bool WaveIfDue();
  // Whether a round that goes wave by wave is under way.
  bool waving() const { return waved_round_.has_value(); }

 private:
  // What a round came to, or why its epoch is over.
  void EndRound(const ClosingRound& round, absl::StatusOr<RoundReport> report);
  void BeginWaves(ClosingRound round);
  // The text of the record of a round that is about to be prepared.
  std::string MakeRecord(const RoundReport& report, JobRecord record);

  TaskContext* const context_;
  Restores* const restores_;
  std::optional<ClosingRound> waved_round_;  // under way
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_ROUNDS_H_
