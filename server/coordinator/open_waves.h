// A pipelined round from its first wave on: which rows each wave has, and when
// it may run (P43). A pure state machine.
#ifndef AGG_SERVER_COORDINATOR_OPEN_WAVES_H_
#define AGG_SERVER_COORDINATOR_OPEN_WAVES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "server/round/shard_peer.h"

namespace agg {

// A row of the round, as far as all shards have it.
struct WaveRow {
  int32_t rank = 0;
  uint64_t session = 0;
  uint32_t attempt = 0;
  int waves = 0;  // so many of the first ones are complete
};

// Thread-compatible.
class OpenWaves {
 public:
  // REQUIRES: num_waves > 0; rows ascend by rank.
  OpenWaves(uint64_t round, int num_waves, std::vector<WaveRow> rows)
      : round_(round), num_waves_(num_waves), rows_(std::move(rows)) {}

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

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_OPEN_WAVES_H_
