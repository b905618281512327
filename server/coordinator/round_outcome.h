// What a round that has ended says to workers and to people: pure functions of
// its report and of the commits that it was made of.
#ifndef AGG_SERVER_COORDINATOR_ROUND_OUTCOME_H_
#define AGG_SERVER_COORDINATOR_ROUND_OUTCOME_H_

#include <cstdint>
#include <map>

#include "absl/time/time.h"
#include "server/combine/options.h"
#include "server/coordinator/job_types.h"
#include "server/coordinator/round_result.h"
#include "server/round/round_report.h"

namespace agg {

// A round that takes no more commits and is about to run.
struct ClosingRound {
  uint64_t epoch = 0;
  uint64_t round = 0;
  std::map<int32_t, Contribution> contributions;  // by rank
  absl::Duration waited;                          // since the round opened
  CombineOptions combine;                         // how it is combined
  CloseOffers offers;  // that shards have made for it (P44)
};

// Adds to the engine's report what only the coordinator knows: how long the
// round waited, when each row was committed and with which traceparent (in the
// order of report->rows), when it ended, and remarks in its message.
void CompleteReport(const ClosingRound& round, absl::Time finished_at,
                    RoundReport* report);

// The outcome as a session without a row in it sees it (`included` is false).
RoundResult OutcomeOf(const RoundReport& report);

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_ROUND_OUTCOME_H_
