// The sessions that a shard knows, alive and ended. Thread-compatible.
#ifndef AGG_SERVER_ROUND_SESSION_TABLE_H_
#define AGG_SERVER_ROUND_SESSION_TABLE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace agg {

class SessionTable {
 public:
  // A live session of `rank`.
  void Begin(uint64_t session, int32_t rank);
  // Its later calls get `reason`. The last 4096 ended ones are remembered.
  void End(uint64_t session, const absl::Status& reason);
  void Clear();
  // Whether it is alive, or its end is remembered.
  bool Knows(uint64_t session) const { return sessions_.count(session) != 0; }
  bool any_alive() const { return !alive_.empty(); }
  // The live session of each rank that has one.
  const std::map<int32_t, uint64_t>& alive() const { return alive_; }

  // The rank of a live session; the reason of an ended one; NOT_FOUND for one
  // never heard of ("Join again").
  absl::StatusOr<int32_t> Rank(uint64_t session) const;

 private:
  struct Entry {
    int32_t rank;
    absl::Status ended;  // OK while alive
  };
  std::unordered_map<uint64_t, Entry> sessions_;
  std::deque<uint64_t> ended_;  // oldest first
  std::map<int32_t, uint64_t> alive_;
};

}  // namespace agg

#endif  // AGG_SERVER_ROUND_SESSION_TABLE_H_
