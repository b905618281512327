// Commits that came with the last frame of a row, while not all shards have
// reported the row as complete (P41).
#ifndef AGG_SERVER_COORDINATOR_AWAITED_COMMITS_H_
#define AGG_SERVER_COORDINATOR_AWAITED_COMMITS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "proto/shard_plan.h"
#include "server/coordinator/coordinator_types.h"
#include "server/round/shard_peer.h"

namespace agg {

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
