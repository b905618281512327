// How far a device had been given work when a tensor came. Apart from who asks:
// the driver says whether it has got there, and nobody waits in the driver for
// what a caller's stream may never do.
#ifndef AGG_WORKER_CLIENT_DEVICE_MARK_H_
#define AGG_WORKER_CLIENT_DEVICE_MARK_H_

#include <atomic>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/device_memory/device_stream.h"

namespace agg {

// Thread-safe.
class DeviceMark {
 public:
  // `event` has been recorded, and is not recorded again.
  explicit DeviceMark(std::unique_ptr<const DeviceEvent> event)
      : event_(std::move(event)) {}
  DeviceMark(const DeviceMark&) = delete;
  DeviceMark& operator=(const DeviceMark&) = delete;

  // Whether the device has done all before the event; from then on it has.
  // Asks the driver, and does not wait. Errors as CudaDriver::Check.
  absl::StatusOr<bool> Reached() const {
    if (reached_) return true;
    absl::StatusOr<bool> done = event_->IsDone();
    if (done.ok() && *done) reached_ = true;
    return done;
  }

 private:
  const std::unique_ptr<const DeviceEvent> event_;
  mutable std::atomic<bool> reached_{false};
};

// Several tensors may have one; null: of the host's memory.
using SharedMark = std::shared_ptr<const DeviceMark>;

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_DEVICE_MARK_H_
