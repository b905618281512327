// Which epoch a shard has promised (P20), whether workers are served in it, and
// why it is over if it is.
#ifndef AGG_SERVER_SHARD_SHARD_EPOCH_H_
#define AGG_SERVER_SHARD_SHARD_EPOCH_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/dcheck.h"
#include "server/round/recovery.h"

namespace agg {

// What the coordinator must not forget, as its own text; null: none.
using RecordText = std::shared_ptr<const std::string>;

// One part's copy in this process, as what is known about it: which version it
// is at, and whether it is prepared for the next one (P15, P17). The arrays are
// elsewhere: home and replica have different ones.
// Void -> held -> prepared by an epoch, in part and then whole -> held at the
// next version. Thread-compatible: its owner's lock protects it.
class HeldCopy {
 public:
  explicit HeldCopy(int32_t part) { state_.part = part; }

  bool held() const { return held_; }  // false: void
  // Version that the copy is at; for a void copy, where it was last.
  const VersionId& id() const { return state_.id; }
  bool At(const VersionId& id) const { return held_ && state_.id == id; }
  bool prepared() const { return state_.prepared_by != 0; }
  bool whole() const { return state_.whole; }
  // REQUIRES: held().
  const CopyState& state() const {
    AGG_DCHECK(held_);
    return state_;
  }
  // Record of the version that the copy is at. Part 0 alone has one.
  const RecordText& record() const { return record_; }

  // Notes that the arrays are those of `id`: a seed, or what was loaded or
  // fetched.
  void Hold(const VersionId& id, RecordText record);
  // Notes that something of the next version is there from now on.
  void BeginPrepare(uint64_t epoch);
  // Notes that all of it is there. `record`: of the next version.
  void EndPrepare(RecordText record);
  // Notes that the arrays are those of the next version now. REQUIRES: whole().
  void Step();
  // Forgets what was prepared: the copy stays where it is.
  void Drop();
  void Void();

  // OK if Step leads to `target`; else FAILED_PRECONDITION.
  absl::Status CheckStep(const VersionId& target) const;
  // "part 2 is at version 5 (made by epoch 7), prepared by epoch 8".
  std::string Describe() const;

 private:
  bool held_ = false;
  CopyState state_;
  RecordText record_;
  RecordText next_record_;
};

// "version 5 (made by epoch 7)".
std::string DescribeVersion(const VersionId& id);

// Not attached -> promised -> open -> over -> promised (a newer epoch) and so
// on. Once the device is lost no epoch begins any more. Thread-compatible: its
// owner's lock protects it.
class ShardEpoch {
 public:
  using LostCallback = std::function<void(absl::Status)>;

  // `ordinal`: of the shard, for messages.
  explicit ShardEpoch(int32_t ordinal) : ordinal_(ordinal) {}

  // No epoch up to this one begins any more: one of them is known to have been.
  void PromiseAtLeast(uint64_t epoch) { floor_ = std::max(floor_, epoch); }
  // The highest epoch that was promised; 0: none.
  uint64_t promise() const { return std::max(floor_, number_); }

  // True if `epoch` begins with this call, false if it is on already. Workers
  // are not served before Open. ABORTED for 0 and for one that is not above the
  // promise; the loss, once the device is lost. `on_lost` is kept for
  // LoseDevice.
  absl::StatusOr<bool> Begin(uint64_t epoch, LostCallback on_lost);
  // Workers are served; and not, until the next Open.
  void Open() { open_ = true; }
  void Close() { open_ = false; }
  // The epoch is over; the first reason stays. 0 means the current epoch.
  // False if `epoch` is not the current one: nothing has changed then.
  bool End(uint64_t epoch, const absl::Status& reason);
  // The epoch is over, with this reason even if there was another before.
  void Break(const absl::Status& reason) { end_ = reason; }
  // Break, for good. Returns Begin's `on_lost`, to be called without locks.
  LostCallback LoseDevice(const absl::Status& reason);

  // A coordinator's call: OK while `epoch` is on. UNAVAILABLE before the first
  // Begin, ABORTED for another epoch (names the current one), or the reason of
  // the end.
  absl::Status Check(uint64_t epoch) const;
  // A worker's call: the same, and UNAVAILABLE before Open.
  absl::Status CheckOpen(uint64_t epoch) const;
  // ABORTED: `epoch` is not the current one.
  absl::Status Stale(uint64_t epoch) const;

  uint64_t number() const { return number_; }  // 0: none yet
  bool on() const { return attached_ && end_.ok(); }
  bool open() const { return on() && open_; }
  const absl::Status& end() const { return end_; }  // OK: not over

 private:
  const int32_t ordinal_;
  uint64_t floor_ = 0;
  uint64_t number_ = 0;
  bool attached_ = false;
  bool open_ = false;
  absl::Status end_;
  bool device_lost_ = false;
  LostCallback on_lost_;
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_SHARD_EPOCH_H_
