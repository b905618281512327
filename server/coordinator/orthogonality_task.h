// Measures how orthogonal a round's rows are, tensor by tensor, while the
// shards step the optimizer.
#ifndef AGG_SERVER_COORDINATOR_ORTHOGONALITY_TASK_H_
#define AGG_SERVER_COORDINATOR_ORTHOGONALITY_TASK_H_

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "server/combine/adasum.h"
#include "server/combine/compacted_round.h"
#include "server/combine/decision.h"
#include "server/combine/options.h"

namespace agg {

// Workers are told the orthogonality with the round's outcome, so that it is
// needed when the round ends, but not before its coefficients are sent. Used by
// one thread.
class OrthogonalityTask {
 public:
  // Starts threads if the decision lacks the orthogonality and the work is
  // worth it. The arguments outlive the task; `round` does not change
  // meanwhile.
  OrthogonalityTask(const RuleOptions& rule, const CompactedRound& round,
                    const Decision& decision);
  // Waits for the threads.
  ~OrthogonalityTask();
  OrthogonalityTask(const OrthogonalityTask&) = delete;
  OrthogonalityTask& operator=(const OrthogonalityTask&) = delete;

  // Waits for the result and writes it into *decision. The bits do not depend
  // on the number of threads.
  void Finish(Decision* decision);

 private:
  // Solves tensors until none is left; run by each thread and by Finish.
  void Work();
  void Join();

  const RuleOptions& rule_;
  const CompactedRound& round_;
  std::vector<AdasumResult> results_;  // per tensor; empty: nothing to do
  std::atomic<size_t> next_{0};        // the first tensor that nobody has taken
  std::vector<std::thread> threads_;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_ORTHOGONALITY_TASK_H_
