// Two questions, one after the other: may round 0 begin, and is the round
// complete?
#include "server/coordinator/close_policy.h"

namespace agg {
namespace {

// Sets decision->start or when to ask again.
void DecideStart(const CloseOptions& options, const CloseSnapshot& snapshot,
                 absl::Time now, CloseDecision* decision) {
  if (snapshot.started || snapshot.num_members >= options.workers) {
    decision->start = true;
    return;
  }
  if (options.start_timeout <= absl::ZeroDuration()) return;
  const absl::Time deadline = snapshot.opened_at + options.start_timeout;
  if (now < deadline) {
    decision->ask_again_at = deadline;
  } else if (snapshot.num_members >= options.min_workers) {
    decision->start = true;
  }
}

}  // namespace

CloseDecision DecideClose(const CloseOptions& options,
                          const CloseSnapshot& snapshot, absl::Time now) {
  CloseDecision decision;
  DecideStart(options, snapshot, now, &decision);
  if (!decision.start) return decision;
  if (snapshot.num_contributions == 0) {
    decision.close = snapshot.num_members == 0 && snapshot.num_joining > 0;
    return decision;
  }
  if (snapshot.num_waiting == 0) {
    decision.close = true;
    return decision;
  }
  if (options.round_timeout <= absl::ZeroDuration()) return decision;
  // A job that starts only now has waited for joins, not for rows.
  const absl::Time since = snapshot.started ? snapshot.waiting_since : now;
  const absl::Time deadline = since + options.round_timeout;
  decision.close = now >= deadline;
  if (!decision.close) decision.ask_again_at = deadline;
  return decision;
}

}  // namespace agg
