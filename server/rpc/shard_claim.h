// Whose calls a shard takes: the claim of one coordinator's life on it. It is
// apart from the service so that it can be tested without streams.
#ifndef AGG_SERVER_RPC_SHARD_CLAIM_H_
#define AGG_SERVER_RPC_SHARD_CLAIM_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace agg {

// A life holds the claim from its first Attach stream until its last one has
// ended. Thread-compatible.
class ShardClaim {
 public:
  // A stream of `life` begins. `coordinator`: its address, for messages.
  // FAILED_PRECONDITION naming the holder, if another life holds the claim.
  // Life 0 (a coordinator that sends none) takes a free shard and holds
  // nothing, as before there were claims.
  absl::Status Take(uint64_t life, const std::string& coordinator);
  // A stream for which Take was OK has ended.
  void Release(uint64_t life);

  // An epoch is promised to one coordinator's life, also when its claim has
  // ended (P20): ABORTED if `epoch` was promised to another one.
  absl::Status CheckPromise(uint64_t epoch, uint64_t life) const;
  void Promise(uint64_t epoch, uint64_t life);

 private:
  uint64_t life_ = 0;  // 0: free
  int num_streams_ = 0;
  std::string coordinator_;
  uint64_t promised_epoch_ = 0;  // the last one; 0: none
  uint64_t promised_life_ = 0;
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_SHARD_CLAIM_H_
