// The sessions that a shard knows, alive and ended. Thread-compatible.
#ifndef AGG_SERVER_ROUND_SESSION_TABLE_H_
#define AGG_SERVER_ROUND_SESSION_TABLE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/dcheck.h"
#include "server/round/recovery.h"

namespace agg {

class SessionTable {
 public:
  // Begins a live session of `rank`, which belongs to `identity` for good ("":
  // to anybody). The two before it are for members() alone.
  void Begin(uint64_t session, int32_t rank, uint64_t first_round = 0,
             const std::string& client = "", const std::string& identity = "");
  // Ends the session: its later calls get `reason`. The last 4096 ended ones
  // are remembered.
  void End(uint64_t session, const absl::Status& reason);
  // Forgets all but highest().
  void Clear();
  // Whether it is alive, or its end is remembered.
  bool Knows(uint64_t session) const { return sessions_.count(session) != 0; }
  bool any_alive() const { return !alive_.empty(); }
  // The live session of each rank that has one.
  const std::map<int32_t, uint64_t>& alive() const { return alive_; }

  // The round that a live session begins with. REQUIRES: it is alive.
  uint64_t FirstRound(uint64_t session) const {
    AGG_DCHECK(Rank(session).ok());
    return sessions_.at(session).first_round;
  }

  // What outlives the coordinator (P26): live sessions by rank, the ended ones
  // that are remembered, and the highest number ever heard of; 0: none.
  std::vector<MemberState> members() const;
  std::vector<uint64_t> ended() const { return {ended_.begin(), ended_.end()}; }
  uint64_t highest() const { return highest_; }

  // The rank of a live session; the reason of an ended one; NOT_FOUND for one
  // never heard of ("Join again").
  absl::StatusOr<int32_t> Rank(uint64_t session) const;
  // Identity that a session, alive or ended, belongs to; NOT_FOUND as Rank.
  absl::StatusOr<std::string> Owner(uint64_t session) const;

 private:
  struct Entry {
    int32_t rank;
    absl::Status ended;  // OK while alive
    uint64_t first_round;
    std::string client;
    std::string identity;
  };
  static absl::Status Unknown(uint64_t session);

  std::unordered_map<uint64_t, Entry> sessions_;
  std::deque<uint64_t> ended_;  // oldest first
  std::map<int32_t, uint64_t> alive_;
  uint64_t highest_ = 0;
};

}  // namespace agg

#endif  // AGG_SERVER_ROUND_SESSION_TABLE_H_
