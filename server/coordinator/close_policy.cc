// Three questions, one after the other: may round 0 begin, are enough workers
// in, and is the round complete?
#include "server/coordinator/close_policy.h"

#include <algorithm>

namespace agg {
namespace {

// Sets decision->start or when to ask again.
void DecideStart(const CloseOptions& options, const CloseSnapshot& snapshot,
                 absl::Time now, CloseDecision* decision) {
  if (snapshot.started || snapshot.num_live >= options.workers) {
    decision->start = true;
    return;
  }
  if (options.start_timeout <= absl::ZeroDuration()) return;
  const absl::Time deadline = snapshot.opened_at + options.start_timeout;
  if (now < deadline) {
    decision->ask_again_at = deadline;
  } else if (snapshot.num_live >= options.min_workers) {
    decision->start = true;
  }
}

// Whether rows have to wait for more workers; sets decision->fail or when to
// ask again.
bool HeldByFloor(const CloseOptions& options, const CloseSnapshot& snapshot,
                 absl::Time now, CloseDecision* decision) {
  if (options.floor_policy == FloorPolicy::kWarn ||
      !IsBelowFloor(options, snapshot)) {
    return false;
  }
  if (options.floor_policy == FloorPolicy::kFail) {
    const absl::Time deadline =
        std::min(snapshot.below_floor_since, now) + options.floor_timeout;
    decision->fail = now >= deadline;
    if (!decision->fail) decision->ask_again_at = deadline;
  }
  return true;
}

}  // namespace

bool IsBelowFloor(const CloseOptions& options, const CloseSnapshot& snapshot) {
  return snapshot.started && !snapshot.all_left &&
         snapshot.num_in < options.min_workers;
}

CloseDecision DecideClose(const CloseOptions& options,
                          const CloseSnapshot& snapshot, absl::Time now) {
  CloseDecision decision;
  DecideStart(options, snapshot, now, &decision);
  if (!decision.start) return decision;
  const bool held = HeldByFloor(options, snapshot, now, &decision);
  if (decision.fail) return decision;
  if (snapshot.num_contributions == 0) {
    decision.close = snapshot.num_members == 0 && snapshot.num_joining > 0;
    return decision;
  }
  if (held) return decision;
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
