// Which epoch a shard is in (P14), and why it is over if it is.
#ifndef AGG_SERVER_SHARD_SHARD_EPOCH_H_
#define AGG_SERVER_SHARD_SHARD_EPOCH_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace agg {

// Not attached -> on -> over -> on (a newer epoch) and so on. Once the device
// is lost no epoch begins any more. Thread-compatible: its owner's lock
// protects it.
class ShardEpoch {
 public:
  using LostCallback = std::function<void(absl::Status)>;

  // `ordinal`: of the shard, for messages.
  explicit ShardEpoch(int32_t ordinal) : ordinal_(ordinal) {}

  // True if `epoch` begins with this call, false if it is on already. ABORTED
  // for 0 and for an older one; the loss, once the device is lost. `on_lost`
  // is kept for LoseDevice.
  absl::StatusOr<bool> Begin(uint64_t epoch, LostCallback on_lost);
  // The epoch is over; the first reason stays. 0 means the current epoch.
  // False if `epoch` is not the current one: nothing has changed then.
  bool End(uint64_t epoch, const absl::Status& reason);
  // The epoch is over, with this reason even if there was another before.
  void Break(const absl::Status& reason) { end_ = reason; }
  // Break, for good. Returns Begin's `on_lost`, to be called without locks.
  LostCallback LoseDevice(const absl::Status& reason);

  // OK while `epoch` is on. UNAVAILABLE before the first Begin, ABORTED for
  // another epoch (names the current one), or the reason of the end.
  absl::Status Check(uint64_t epoch) const;
  // ABORTED: `epoch` is not the current one.
  absl::Status Stale(uint64_t epoch) const;

  uint64_t number() const { return number_; }  // 0: none yet
  bool on() const { return attached_ && end_.ok(); }
  const absl::Status& end() const { return end_; }  // OK: not over

 private:
  const int32_t ordinal_;
  uint64_t number_ = 0;
  bool attached_ = false;
  absl::Status end_;
  bool device_lost_ = false;
  LostCallback on_lost_;
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_SHARD_EPOCH_H_
