// Commits that came with the last frame of a row, while not all shards have
// reported the row as complete (P41); and which waves of a pipelined round may
// run (P43).
#ifndef AGG_SERVER_COORDINATOR_AWAITED_COMMITS_H_
#define AGG_SERVER_COORDINATOR_AWAITED_COMMITS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "proto/shard_plan.h"
#include "server/coordinator/coordinator_types.h"
#include "server/round/shard_peer.h"

namespace agg {

// A row of a pipelined round, as far as all shards have it.
struct WaveRow {
  int32_t rank = 0;
  uint64_t session = 0;
  uint32_t attempt = 0;
  int waves = 0;  // so many of the first ones are complete
};

// A pipelined round from its first wave on: which rows each wave has, and when
// it may run (P43). A pure state machine. Thread-compatible.
class OpenWaves {
 public:
  // REQUIRES: num_waves > 0; rows ascend by rank.
  OpenWaves(uint64_t round, int num_waves, std::vector<WaveRow> rows);

  uint64_t round() const { return round_; }
  // The wave that is next, counted from 0.
  int next() const { return next_; }
  bool done() const { return next_ == num_waves_; }

  // All shards have so many waves of the row. Rows of other rounds, sessions
  // and attempts, and fewer waves than before, change nothing.
  void Note(const CompleteRow& row, int waves);

  // The ranks that the next wave has, ascending, if nobody is waited for:
  // every row that is there in full, which is that of every worker that is
  // alive. Perhaps none. REQUIRES: !done().
  using IsAlive = std::function<bool(uint64_t session)>;
  std::optional<std::vector<int32_t>> RanksIfDue(const IsAlive& is_alive) const;
  // Who is waited for, ascending. REQUIRES: !done().
  std::vector<int32_t> Missing(const IsAlive& is_alive) const;
  // The next wave has run, without `dropped`, whose rows a shard lacks: they
  // are in no later one, and nobody waits for them.
  void Advance(const std::set<int32_t>& dropped);

 private:
  const uint64_t round_;
  const int num_waves_;
  int next_ = 0;
  std::vector<WaveRow> rows_;
};

// Shards 1 to n have slices, where this is n; shard 0 sees its own rows.
// REQUIRES: ValidateManifest(manifest).ok().
int NumReportingShards(const Manifest& manifest, int num_shards);

// Keeps at most one commit of each session, and the newest report of each
// shard, in whatever order they come. Thread-compatible.
class AwaitedCommits {
 public:
  // Every shard from 1 to `num_reporting` has to report, and in a pipelined job
  // `with_own`, which is shard 0. Forgets all.
  void Begin(int num_reporting, bool with_own = false);

  // Whether all shards have reported the row of this commit.
  bool Reported(const CommitCall& call) const;
  // Keeps the commit of a row that is not reported yet, unless one of a later
  // round or of a higher or the same attempt is kept for its session.
  // REQUIRES: the session is alive.
  void Add(const CommitCall& call);
  // Takes a shard's report. Returns the commit that waited for nothing else,
  // which is not kept any longer. A report of an earlier round or attempt than
  // the shard's last one changes nothing, and so does one of a shard that need
  // not report.
  // REQUIRES: the row's session is alive.
  std::optional<CommitCall> Report(int ordinal, const CompleteRow& row);

  // Returns how many of the row's first waves all shards have, in a pipelined
  // job; 0 if the newest report of a shard is about another row.
  int Waves(const CompleteRow& row) const;

  // Those of which anything is kept.
  std::vector<uint64_t> Sessions() const;
  // Forgets a session that is over.
  void Forget(uint64_t session) { sessions_.erase(session); }
  // Takes the commits of this round, which has ended, and of earlier ones: they
  // are not kept any longer.
  std::vector<CommitCall> TakeUpTo(uint64_t round);

 private:
  struct RowName {
    uint64_t round = 0;
    uint32_t attempt = 0;
    int waves = 0;
  };
  struct Session {
    std::optional<CommitCall> commit;
    std::vector<std::optional<RowName>> reports;  // of shards first_ to n
  };
  static bool Older(const RowName& a, const RowName& b) {
    return a.round != b.round ? a.round < b.round : a.attempt < b.attempt;
  }
  static RowName NameOf(const CommitCall& call) {
    return {call.round, call.attempt, 0};
  }

  int first_ = 1;          // shard that reports
  int num_reporting_ = 0;  // shards
  std::map<uint64_t, Session> sessions_;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_AWAITED_COMMITS_H_
