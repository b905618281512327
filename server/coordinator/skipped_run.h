// How many rounds in a row brought nothing, and what is said of it: they were
// skipped, or their parameters are not finite. Apart from the round's report,
// which knows one round only.
#ifndef AGG_SERVER_COORDINATOR_SKIPPED_RUN_H_
#define AGG_SERVER_COORDINATOR_SKIPPED_RUN_H_

#include <cstdint>
#include <optional>
#include <string>

#include "server/round/round_report.h"

namespace agg {

// Counts the rounds of one epoch: a new seed begins anew. Thread-compatible.
class SkippedRun {
 public:
  // The job is to end after `max_rounds` such rounds in a row; 0: never.
  explicit SkippedRun(uint64_t max_rounds) : max_rounds_(max_rounds) {}

  // A round has ended. One without any row says nothing of the parameters: it
  // neither counts nor ends a run.
  void Note(const RoundReport& report);
  // Skipped rounds in a row.
  uint64_t length() const { return length_; }
  // Rounds in a row with parameters that are not finite, the one that made
  // them so included. A skipped round leaves the parameters as they are.
  uint64_t not_finite_length() const {
    return not_finite_.has_value() ? 1 + num_after_ : 0;
  }
  // Whether the round of the last Note deserves its line in the log: not each
  // one of thousands, but the 1st, the 10th, the 100th.
  bool worth_a_line() const;
  // "the parameters have not been finite since round 0 (tensor "w", .."; "":
  // they are, as far as this epoch's rounds say.
  std::string NotFiniteText() const;
  // Text for people who ask how the job is; "" while at most one round was
  // skipped and the parameters are finite.
  std::string Text() const;
  // Why the job has to end; "" while it has not to.
  std::string FailureText() const;

 private:
  uint64_t max_rounds_;
  uint64_t length_ = 0;
  std::string last_reason_;
  // The first update that left parameters that are not finite, and the rounds
  // after it. An update that leaves finite ones ends this.
  std::optional<NotFiniteParameters> not_finite_;
  uint64_t not_finite_since_ = 0;
  uint64_t num_after_ = 0;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_SKIPPED_RUN_H_
