// Phases have numbers, so that a look now and then tells whether it is still
// the same one.
#include "server/hung_phase.h"

#include "absl/strings/str_cat.h"
#include "server/round/phase.h"

namespace agg {

std::string HungPhase::Look(const std::optional<RunningPhase>& running,
                            absl::Time now) {
  const uint64_t number = running.has_value() ? running->number : 0;
  const uint64_t progress = running.has_value() ? running->progress : 0;
  if (number != number_) said_ = false;
  if (number != number_ || progress != progress_) since_ = now;
  number_ = number;
  progress_ = progress;
  if (number == 0 || said_ || now - since_ < timeout_) return "";
  said_ = true;
  return absl::StrCat("phase ", PhaseName(running->kind), " of round ",
                      running->round, " has hung for ",
                      absl::FormatDuration(timeout_),
                      " (phase_timeout_seconds)");
}

}  // namespace agg
