// The epoch's state is one status: OK while it lasts, then why it is over.
#include "server/shard/shard_epoch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/dcheck.h"

namespace agg {

// The states of a copy: each function is one arrow between them.

void HeldCopy::Hold(const VersionId& id, RecordText record) {
  Void();
  held_ = true;
  state_.id = id;
  record_ = std::move(record);
}

void HeldCopy::BeginPrepare(uint64_t epoch) {
  state_.prepared_by = epoch;
  state_.whole = false;
}

void HeldCopy::EndPrepare(RecordText record) {
  state_.whole = true;
  next_record_ = std::move(record);
}

void HeldCopy::Step() {
  AGG_DCHECK(held_ && whole());
  const VersionId next{state_.prepared_by, state_.id.version + 1};
  Hold(next, std::move(next_record_));
}

void HeldCopy::Drop() {
  state_.prepared_by = 0;
  state_.whole = false;
  next_record_ = nullptr;
}

void HeldCopy::Void() {
  Drop();
  held_ = false;
  record_ = nullptr;
}

absl::Status HeldCopy::CheckStep(const VersionId& target) const {
  const VersionId next{state_.prepared_by, state_.id.version + 1};
  if (held_ && state_.whole && next == target) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "a step to ", DescribeVersion(target), " is not possible: ", Describe()));
}

std::string HeldCopy::Describe() const {
  const std::string part = absl::StrCat("part ", state_.part);
  if (!held_) return absl::StrCat(part, " is void");
  const std::string at =
      absl::StrCat(part, " is at ", DescribeVersion(state_.id));
  if (!prepared()) return at;
  return absl::StrCat(at, ", prepared ", state_.whole ? "" : "in part ",
                      "by epoch ", state_.prepared_by);
}

std::string DescribeVersion(const VersionId& id) {
  return absl::StrCat("version ", id.version, " (made by epoch ", id.made, ")");
}

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
