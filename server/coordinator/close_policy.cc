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

absl::Duration TimeoutOf(const CloseOptions& options,
                         const CloseSnapshot& snapshot) {
  const absl::Duration off = absl::ZeroDuration();
  if (options.round_timeout <= off)
    return std::max(snapshot.usual_timeout, off);
  if (snapshot.usual_timeout <= off) return options.round_timeout;
  return std::min(options.round_timeout, snapshot.usual_timeout);
}

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
  const bool has_quorum =
      options.quorum > 0 && snapshot.num_contributions >= options.quorum;
  if (snapshot.num_waiting == 0 || has_quorum) {
    decision.close = true;
    return decision;
  }
  const absl::Duration timeout = TimeoutOf(options, snapshot);
  if (timeout <= absl::ZeroDuration()) return decision;
  // A job that starts only now has waited for joins, not for rows.
  const absl::Time since = snapshot.started ? snapshot.waiting_since : now;
  const absl::Time deadline = since + timeout;
  decision.close = now >= deadline;
  if (!decision.close) decision.ask_again_at = deadline;
  return decision;
}

}  // namespace agg
