// The epoch's state is one status: OK while it lasts, then why it is over.
#include "server/shard/shard_epoch.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace agg {

absl::StatusOr<bool> ShardEpoch::Begin(uint64_t epoch, LostCallback on_lost) {
  if (epoch < number_ || epoch <= floor_) return Stale(epoch);
  if (epoch == number_ && end_.ok()) return false;
  if (device_lost_) return end_;
  if (epoch == number_) return Stale(epoch);  // it is over
  number_ = epoch;
  attached_ = true;
  open_ = false;
  end_ = absl::OkStatus();
  on_lost_ = std::move(on_lost);
  return true;
}

bool ShardEpoch::End(uint64_t epoch, const absl::Status& reason) {
  if (epoch != 0 && epoch != number_) return false;
  if (end_.ok()) end_ = reason;
  return true;
}

ShardEpoch::LostCallback ShardEpoch::LoseDevice(const absl::Status& reason) {
  device_lost_ = true;
  Break(reason);
  return on_lost_;
}

absl::Status ShardEpoch::Check(uint64_t epoch) const {
  if (!attached_) {
    return absl::UnavailableError(
        absl::StrCat("shard ", ordinal_, " waits for its coordinator"));
  }
  if (epoch != number_) return Stale(epoch);
  return end_;
}

absl::Status ShardEpoch::CheckOpen(uint64_t epoch) const {
  const absl::Status status = Check(epoch);
  if (!status.ok() || open_) return status;
  return absl::UnavailableError(
      absl::StrCat("shard ", ordinal_, " is recovering"));
}

absl::Status ShardEpoch::Stale(uint64_t epoch) const {
  return absl::AbortedError(
      absl::StrCat("stale epoch ", epoch, "; current epoch ", promise()));
}

}  // namespace agg
