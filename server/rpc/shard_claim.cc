// Counts the Attach streams of the life that holds the shard; the last one's
// end frees it.
#include "server/rpc/shard_claim.h"

#include "absl/strings/str_cat.h"

namespace agg {

absl::Status ShardClaim::Take(uint64_t life, const std::string& coordinator) {
  if (life_ != 0 && life != life_) {
    return absl::FailedPreconditionError(
        absl::StrCat("the shard is held by another coordinator (", coordinator_,
                     ", life ", absl::Hex(life_, absl::kZeroPad16),
                     "); it is free when that one's Attach stream has ended"));
  }
  if (life == 0) return absl::OkStatus();
  life_ = life;
  coordinator_ = coordinator;
  ++num_streams_;
  return absl::OkStatus();
}

void ShardClaim::Release(uint64_t life) {
  // Life 0 has taken nothing that could be given back.
  if (life == 0 || life != life_) return;
  if (--num_streams_ == 0) life_ = 0;
}

}  // namespace agg
