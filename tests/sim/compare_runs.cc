// What a run has to have in common with the undisturbed one.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/server/round/row_frames.h"
#include "tests/sim/job_simulation.h"

namespace agg {

std::string Describe(const SimPlan& plan) {
  std::vector<std::string> faults;
  for (const Fault& fault : plan.faults) faults.push_back(Describe(fault));
  return absl::StrCat(
      "seed ", plan.seed, ", K = ", plan.num_shards,
      plan.replicated ? ", replicated" : "",
      plan.checkpoints ? ", checkpoints" : "",
      plan.torn == Torn::kNone
          ? ""
          : absl::StrCat(", folder ", plan.torn_shard, " torn (",
                         static_cast<int>(plan.torn), ")"),
      plan.anew ? ", begins anew" : "", plan.evicts ? ", evicts" : "", ": ",
      absl::StrJoin(faults, "; "));
}

void CompareRuns(const SimPlan& plan, const SimOutcome& undisturbed,
                 SimOutcome* run) {
  if (!run->errors.empty() || run->lost_at_end) return;
  if (run->rows != undisturbed.rows) {
    // Whoever was in at the checkpoint's time is in from there on (P26).
    if (run->num_rewinds > 0) return;
    // Copies can outlive the sessions, which are given out after them (P19).
    if (run->neighbours_lost) return;
    // The row of a worker that is gone is not pushed again, and its next
    // process joins a job that does not know of the former one.
    const auto worker = [](const Fault& fault) {
      return fault.kind == FaultKind::kKillWorker;
    };
    const auto& faults = plan.faults;
    if (std::any_of(faults.begin(), faults.end(), worker) &&
        !std::all_of(faults.begin(), faults.end(), worker)) {
      return;
    }
    run->errors.push_back("the rounds have other rows than undisturbed");
    return;
  }
  if (!SameBits(run->parameters, undisturbed.parameters)) {
    run->errors.push_back("the final parameters have other bits");
  }
  for (const auto& [version, parameters] : run->versions) {
    const auto expected = undisturbed.versions.find(version);
    if (expected != undisturbed.versions.end() &&
        !SameBits(expected->second, parameters)) {
      run->errors.push_back(
          absl::StrCat("version ", version, " was pulled with other bits"));
    }
  }
}

}  // namespace agg
