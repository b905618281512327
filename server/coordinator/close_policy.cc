// Three questions, one after the other: may round 0 begin, are enough workers
// in, and is the round complete? ArrivalTimes takes a timeout from earlier
// rounds, and counts who was late.
#include "server/coordinator/close_policy.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "server/base/dcheck.h"
#include "server/combine/outliers.h"

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
  AGG_DCHECK(snapshot.num_contributions > 0);
  // A job that starts only now has waited for joins, not for rows.
  const absl::Time since = snapshot.started ? snapshot.waiting_since : now;
  const absl::Time deadline = since + timeout;
  decision.close = now >= deadline;
  if (!decision.close) decision.ask_again_at = deadline;
  return decision;
}

// --- How the last rounds went
// -------------------------------------------------

void ArrivalTimes::BeginEpoch(uint64_t version) {
  first_round_ = version;
  next_round_ = version;
  pending_.clear();
  timeout_ = absl::ZeroDuration();
  for (auto& [number, rank] : ranks_) rank.next_round = version;
  // Their latenesses still say what is usual. Their numbers may come again.
  for (Round& round : rounds_) round.first_commit = absl::InfiniteFuture();
}

void ArrivalTimes::NoteRound(uint64_t round,
                             const std::vector<RowArrival>& rows) {
  next_round_ = round + 1;
  const std::map<int32_t, absl::Time> late = std::exchange(pending_, {});
  if (rows.empty()) return;
  const auto earlier = [](const RowArrival& a, const RowArrival& b) {
    return a.committed_at < b.committed_at;
  };
  const auto [first, last] =
      std::minmax_element(rows.begin(), rows.end(), earlier);
  Round kept;
  kept.round = round;
  kept.first_commit = first->committed_at;
  for (auto row = rows.begin(); row != rows.end(); ++row) {
    const absl::Duration lateness = row->committed_at - kept.first_commit;
    Rank& rank = ranks_[row->rank];
    rank.next_round = round + 1;
    AddLateness(&rank, lateness);
    if (row != first) kept.latenesses.push_back(lateness);
  }
  if (rows.size() > 1) ++ranks_[last->rank].last_rows;
  rounds_.push_back(std::move(kept));
  if (rounds_.size() > kNumRounds) rounds_.pop_front();
  for (const auto& [rank, at] : late) CountLate(rank, round, at);
  timeout_ = ComputeTimeout();
}

void ArrivalTimes::NoteLate(int32_t rank, uint64_t round, absl::Time now) {
  if (round == next_round_) {
    pending_.emplace(rank, now);
  } else if (round < next_round_) {
    CountLate(rank, round, now);
  }
}

void ArrivalTimes::CountLate(int32_t rank, uint64_t round, absl::Time now) {
  auto found = ranks_.find(rank);
  if (found == ranks_.end()) {
    found = ranks_.emplace(rank, Rank()).first;
    found->second.next_round = first_round_;
  }
  if (round < found->second.next_round) return;
  found->second.next_round = round + 1;
  ++found->second.late_rows;
  for (Round& kept : rounds_) {
    if (kept.round != round || kept.first_commit > now) continue;
    kept.latenesses.push_back(now - kept.first_commit);
    AddLateness(&found->second, kept.latenesses.back());
  }
}

void ArrivalTimes::AddLateness(Rank* rank, absl::Duration lateness) {
  rank->latenesses.push_back(lateness);
  if (rank->latenesses.size() > kNumPerRank) rank->latenesses.pop_front();
}

absl::Duration ArrivalTimes::ComputeTimeout() const {
  if (!(mad_factor_ > 0.0)) return absl::ZeroDuration();
  std::vector<absl::Duration> samples;
  for (const Round& round : rounds_) {
    samples.insert(samples.end(), round.latenesses.begin(),
                   round.latenesses.end());
  }
  if (samples.size() < kMinSamples) return absl::ZeroDuration();
  const absl::Duration median = Median(samples);
  for (absl::Duration& sample : samples) {
    sample = absl::AbsDuration(sample - median);
  }
  const absl::Duration deviation = Median(std::move(samples));
  return std::max({median + mad_factor_ * deviation, 2 * median, kMinTimeout});
}

RankArrivals ArrivalTimes::Of(int32_t rank) const {
  const auto found = ranks_.find(rank);
  if (found == ranks_.end()) return {};
  const Rank& known = found->second;
  RankArrivals arrivals{known.late_rows, known.last_rows, absl::ZeroDuration()};
  if (!known.latenesses.empty()) {
    arrivals.lateness = Median(std::vector<absl::Duration>(
        known.latenesses.begin(), known.latenesses.end()));
  }
  return arrivals;
}

}  // namespace agg
