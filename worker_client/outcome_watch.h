// What a person wants to hear of rounds that went otherwise than expected.
#ifndef AGG_WORKER_CLIENT_OUTCOME_WATCH_H_
#define AGG_WORKER_CLIENT_OUTCOME_WATCH_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"
#include "worker_client/client_types.h"

namespace agg {

// Tells the first round that was skipped, and the first that has left out the
// row of each rank; counts the others for the end. Thread-safe.
class OutcomeWatch {
 public:
  // What is new; each is one line: "round 3 was skipped: .." or "round 3 has
  // left out the row of rank 1: ..". A round that was noted before: nothing.
  std::vector<std::string> Note(const RoundOutcome& outcome);
  // "40 of 43 rounds were skipped, 2 have left out the row of rank 1"; "": no
  // more than Note has told.
  std::string Summary() const;

 private:
  mutable Mutex mutex_;
  uint64_t next_round_ ABSL_GUARDED_BY(mutex_) = 0;  // that was not noted
  uint64_t num_rounds_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t num_skipped_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int, uint64_t> num_left_out_ ABSL_GUARDED_BY(mutex_);  // by rank
  std::set<int> told_ ABSL_GUARDED_BY(mutex_);  // ranks that were named
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_OUTCOME_WATCH_H_
