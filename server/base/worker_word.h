// What a worker does for the open round, in the word that people see. One place
// for the status page and aggctl, which must not call one thing by two names.
#ifndef AGG_SERVER_BASE_WORKER_WORD_H_
#define AGG_SERVER_BASE_WORKER_WORD_H_

#include "absl/strings/string_view.h"

namespace agg {

// What the coordinator knows of a worker with a session.
struct WorkerFacts {
  bool committed = false;       // the open round
  bool missing = false;         // the open round needs it to close
  double waited_seconds = 0.0;  // over 0: others have committed, it has not
};

// `phase`: the name of a JobPhase; a client has it from StatusReply.phase.
//   "joined"      the job has no open round: not seeded, finished, lost
//   "committed"   done with the open round
//   "waited for"  the open round has a commit, and lacks this worker's
//   "computing"   the open round lacks all commits so far
//   "next round"  takes part from the next round on
// Never null.
const char* WorkerWord(absl::string_view phase, const WorkerFacts& worker);

}  // namespace agg

#endif  // AGG_SERVER_BASE_WORKER_WORD_H_
