// How many rounds in a row were skipped, and what is said of it. Apart from the
// round's report, which knows one round only.
#ifndef AGG_SERVER_COORDINATOR_SKIPPED_RUN_H_
#define AGG_SERVER_COORDINATOR_SKIPPED_RUN_H_

#include <cstdint>
#include <string>

#include "server/round/round_report.h"

namespace agg {

// Of one epoch: a new seed begins anew. Thread-compatible.
class SkippedRun {
 public:
  // The job is to end after `max_rounds` skipped rounds in a row; 0: never.
  explicit SkippedRun(uint64_t max_rounds) : max_rounds_(max_rounds) {}

  // A round has ended. One without any row says nothing of the parameters: it
  // neither counts nor ends a run.
  void Note(const RoundReport& report);
  uint64_t length() const { return length_; }
  // Whether the round of the last Note deserves its line in the log: not each
  // one of thousands that are skipped, but the 1st, the 10th, the 100th.
  bool worth_a_line() const;
  // For people who ask how the job is; "" while at most one was skipped.
  std::string Text() const;
  // Why the job has to end; "" while it has not to.
  std::string FailureText() const;

 private:
  uint64_t max_rounds_;
  uint64_t length_ = 0;
  std::string last_reason_;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_SKIPPED_RUN_H_
