// A session's row is complete when the newest report of every shard names it:
// no shard takes frames of a lower attempt any more (P5), so that an older
// report can only be late.
#include "server/coordinator/awaited_commits.h"

#include <algorithm>
#include <utility>

#include "proto/wave_plan.h"
#include "server/base/dcheck.h"

namespace agg {

// A worker that is gone keeps what has landed of its row: later waves go on
// without it.

void OpenWaves::Note(const CompleteRow& row, int waves) {
  if (row.round != round_) return;
  for (WaveRow& known : rows_) {
    if (known.session != row.session || known.attempt != row.attempt) continue;
    known.waves = std::max(known.waves, std::min(waves, num_waves_));
  }
}

OpenWaves::OpenWaves(uint64_t round, int num_waves, std::vector<WaveRow> rows)
    : round_(round), num_waves_(num_waves), rows_(std::move(rows)) {
  AGG_DCHECK(num_waves > 0);
  AGG_DCHECK(std::is_sorted(
      rows_.begin(), rows_.end(),
      [](const WaveRow& a, const WaveRow& b) { return a.rank < b.rank; }));
}

std::vector<int32_t> OpenWaves::Missing(const IsAlive& is_alive) const {
  AGG_DCHECK(!done());
  std::vector<int32_t> missing;
  for (const WaveRow& row : rows_) {
    if (row.waves <= next_ && is_alive(row.session)) {
      missing.push_back(row.rank);
    }
  }
  return missing;
}

std::optional<std::vector<int32_t>> OpenWaves::RanksIfDue(
    const IsAlive& is_alive) const {
  AGG_DCHECK(!done());
  if (!Missing(is_alive).empty()) return std::nullopt;
  std::vector<int32_t> ranks;
  for (const WaveRow& row : rows_) {
    if (row.waves > next_) ranks.push_back(row.rank);
  }
  return ranks;
}

void OpenWaves::Advance(const std::set<int32_t>& dropped) {
  ++next_;
  rows_.erase(std::remove_if(rows_.begin(), rows_.end(),
                             [&dropped](const WaveRow& row) {
                               return dropped.count(row.rank) != 0;
                             }),
              rows_.end());
}

int NumReportingShards(const Manifest& manifest, int num_shards) {
  AGG_DCHECK(ValidateManifest(manifest).ok());
  // Slices go to the least loaded shard, the lowest of several, so that the
  // first slices are one for each shard in turn (proto/shard_plan.h).
  int64_t num_slices = 0;
  for (const TensorSpec& tensor : manifest.tensors) {
    num_slices +=
        (NumElements(tensor) + kMaxSliceElements - 1) / kMaxSliceElements;
  }
  const int64_t with_slices = std::min<int64_t>(num_slices, num_shards);
  return static_cast<int>(std::max<int64_t>(with_slices - 1, 0));
}

void AwaitedCommits::Begin(int num_reporting, bool with_own) {
  first_ = with_own ? 0 : 1;
  num_reporting_ = num_reporting + (with_own ? 1 : 0);
  sessions_.clear();
}

bool AwaitedCommits::Reported(const CommitCall& call) const {
  if (num_reporting_ == 0) return true;
  const auto session = sessions_.find(call.session);
  if (session == sessions_.end()) return false;
  const auto& reports = session->second.reports;
  return !reports.empty() &&
         std::all_of(reports.begin(), reports.end(), [&](const auto& report) {
           return report.has_value() && report->round == call.round &&
                  report->attempt == call.attempt;
         });
}

void AwaitedCommits::Add(const CommitCall& call) {
  std::optional<CommitCall>& kept = sessions_[call.session].commit;
  if (kept.has_value() && !Older(NameOf(*kept), NameOf(call))) return;
  kept = call;
}

std::optional<CommitCall> AwaitedCommits::Report(int ordinal,
                                                 const CompleteRow& row) {
  if (ordinal < first_ || ordinal >= first_ + num_reporting_) {
    return std::nullopt;
  }
  Session& session = sessions_[row.session];
  session.reports.resize(static_cast<size_t>(num_reporting_));
  std::optional<RowName>& report =
      session.reports[static_cast<size_t>(ordinal - first_)];
  const RowName name{row.round, row.attempt, row.waves};
  if (!report.has_value() || Older(*report, name)) {
    report = name;
  } else if (!Older(name, *report)) {
    report->waves = std::max(report->waves, name.waves);
  }
  if (!session.commit.has_value() || !Reported(*session.commit)) {
    return std::nullopt;
  }
  return std::exchange(session.commit, std::nullopt);
}

int AwaitedCommits::Waves(const CompleteRow& row) const {
  if (num_reporting_ == 0) return kMaxWaves;  // there is nothing to push
  const auto session = sessions_.find(row.session);
  if (session == sessions_.end() || session->second.reports.empty()) return 0;
  int waves = kMaxWaves;
  for (const std::optional<RowName>& report : session->second.reports) {
    const bool same = report.has_value() && report->round == row.round &&
                      report->attempt == row.attempt;
    waves = std::min(waves, same ? report->waves : 0);
  }
  return waves;
}

std::vector<uint64_t> AwaitedCommits::Sessions() const {
  std::vector<uint64_t> sessions;
  for (const auto& [session, entry] : sessions_) sessions.push_back(session);
  return sessions;
}

std::vector<CommitCall> AwaitedCommits::TakeUpTo(uint64_t round) {
  std::vector<CommitCall> taken;
  for (auto& [session, entry] : sessions_) {
    if (!entry.commit.has_value() || entry.commit->round > round) continue;
    taken.push_back(*std::exchange(entry.commit, std::nullopt));
  }
  return taken;
}

}  // namespace agg
