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

absl::Status ShardClaim::CheckPromise(uint64_t epoch, uint64_t life) const {
  if (epoch != promised_epoch_ || life == promised_life_) {
    return absl::OkStatus();
  }
  return absl::AbortedError(absl::StrCat(
      "epoch ", epoch, " is promised to another coordinator (life ",
      absl::Hex(promised_life_, absl::kZeroPad16), ")"));
}

void ShardClaim::Promise(uint64_t epoch, uint64_t life) {
  promised_epoch_ = epoch;
  promised_life_ = life;
}

}  // namespace agg
