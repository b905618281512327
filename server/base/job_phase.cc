// The order of the tests is the meaning: the first that holds names the worker.
#include "server/base/job_phase.h"

#include "absl/strings/string_view.h"

namespace agg {

const char* WorkerWord(absl::string_view phase, const WorkerFacts& worker) {
  // What is left of an epoch that has ended says nothing about a round.
  if (phase != PhaseName(JobPhase::kOpen) &&
      phase != PhaseName(JobPhase::kClosing)) {
    return "joined";
  }
  if (worker.committed) return "committed";
  if (worker.waited_seconds > 0.0) return "waited for";
  return worker.missing ? "computing" : "next round";
}

}  // namespace agg
