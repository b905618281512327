// Which tensors of the caller's are in the memory of CUDA devices, and copies
// between that and the host's. Apart from what sends and receives, so that
// nothing else of the client calls the driver for a copy.
#ifndef AGG_WORKER_CLIENT_TENSOR_DEVICES_H_
#define AGG_WORKER_CLIENT_TENSOR_DEVICES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/device_memory/cuda_driver.h"
#include "kernels/device_memory/device_context.h"
#include "kernels/device_memory/device_stream.h"
#include "proto/shard_plan.h"
#include "server/base/mutex.h"
#include "worker_client/row_encoding.h"
#include "worker_client/tensor_view.h"

namespace agg {

// How far a device had been given work when a tensor came. It is apart from who
// asks: the driver says whether it has got there, and nobody waits in the
// driver for what a caller's stream may never do. Thread-safe.
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

// The waits for what callers have given their devices to do have limits; the
// driver's own waits have none. This says how long to sleep between two
// questions to the driver, as nobody is woken for a mark: a 16th of what was
// waited, so that a short wait ends soon and a long one costs little.
// Thread-compatible.
class MarkPauses {
 public:
  static constexpr absl::Duration kShortest = absl::Microseconds(5);
  static constexpr absl::Duration kLongest = absl::Microseconds(500);

  // Returns the next pause of the wait that began with the first call since
  // Reset.
  absl::Duration Next(absl::Time now);
  void Reset() { begun_ = absl::InfiniteFuture(); }

 private:
  absl::Time begun_ = absl::InfiniteFuture();
};

// Waits until all marks are reached. Returns what `cancelled` says, unless it
// is OK: it is asked before anything else, and again and again;
// DEADLINE_EXCEEDED, for `what` the caller wants; INTERNAL: the driver's
// errors.
absl::Status AwaitMarks(absl::Span<const SharedMark> marks, const char* what,
                        absl::Time deadline,
                        const std::function<absl::Status()>& cancelled);

// Returns the DEADLINE_EXCEEDED of a wait for `what`'s tensors.
absl::Status MarkTimeout(const char* what);

// Asks the driver that the process has loaded, and nobody while it has none:
// without a driver no memory is a device's. Thread-safe.
class TensorDevices {
 public:
  static constexpr int kHost = -1;  // among the devices' numbers
  // Bytes of the largest slice in float32.
  static constexpr int64_t kPinnedBytes = kMaxSliceElements * sizeof(float);

  TensorDevices() = default;
  TensorDevices(const TensorDevices&) = delete;
  TensorDevices& operator=(const TensorDevices&) = delete;

  // Whether the process has a driver by now.
  bool has_driver() { return driver() != nullptr; }

  // Returns the device of each view's memory, or kHost. All pieces of a view
  // are where its first one is. INTERNAL: the driver does not say, and nobody
  // may read that memory.
  absl::StatusOr<std::vector<int>> DevicesOf(
      absl::Span<const TensorView> views);
  absl::StatusOr<std::vector<int>> DevicesOf(
      absl::Span<const MutableTensorView> views);

  // The devices that DevicesOf has met, in ascending order.
  std::vector<int> met() const;

  // A device's primary context. REQUIRES: met.
  absl::StatusOr<std::shared_ptr<const DeviceContext>> ContextOf(int device);

  // Marks a point behind what the legacy default stream of a device that was
  // met has been given so far. INTERNAL: the driver's errors.
  absl::StatusOr<SharedMark> Mark(int device);
  // Marks one point for each of the devices that is not kHost.
  absl::StatusOr<std::map<int, SharedMark>> MarksOf(
      absl::Span<const int> devices);

  // Copies between the memory of a device that was met and the host's: on
  // streams of this class's own, which wait for no other and for which none
  // waits. The copies are done when the calls return. Errors as
  // CudaDriver::Check, RESOURCE_EXHAUSTED as INTERNAL. REQUIRES: what the
  // caller gave the device to do with that memory is done
  // (DeviceMark::Reached).
  absl::Status CopyToHost(int device, void* to, const void* from,
                          int64_t num_bytes);
  absl::Status CopyToDevice(int device, void* to, const void* from,
                            int64_t num_bytes);

  // Registers host memory of others for copies of devices that were met; null:
  // the driver does not, and copies take longer. REQUIRES: as
  // RegisteredMemory::Register.
  std::unique_ptr<RegisteredMemory> Register(int device, void* data,
                                             int64_t num_bytes,
                                             RegisteredMemory::Access access);

  // Host memory of kPinnedBytes that devices copy fast from and to; GiveBack
  // keeps it for the next one. Errors as CopyToHost's.
  absl::StatusOr<std::unique_ptr<PinnedHostMemory>> TakePinned(int device);
  void GiveBack(std::unique_ptr<PinnedHostMemory> memory);

 private:
  // A stream for one copy at a time, of one device.
  using Lane = std::unique_ptr<DeviceStream>;

  std::shared_ptr<const CudaDriver> driver();
  absl::StatusOr<int> DeviceOf(const CudaDriver* driver, const void* data);
  absl::StatusOr<Lane> TakeLane(int device);
  // Runs `copy` on a lane of the device.
  absl::Status RunOnLane(
      int device, const std::function<absl::Status(DeviceStream*)>& copy);

  mutable Mutex mutex_;
  std::shared_ptr<const CudaDriver> driver_ ABSL_GUARDED_BY(mutex_);
  // How many libraries the process had loaded when nothing was found.
  uint64_t looked_after_ ABSL_GUARDED_BY(mutex_) = 0;
  // Contexts of the devices that were met; null: nobody has needed it yet.
  std::map<int, std::shared_ptr<const DeviceContext>> contexts_
      ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<PinnedHostMemory>> pinned_
      ABSL_GUARDED_BY(mutex_);
  std::map<int, std::vector<Lane>> lanes_ ABSL_GUARDED_BY(mutex_);  // free ones
};

// Returns a driver's failure as calls of the client tell it: INTERNAL.
absl::Status DeviceError(const absl::Status& status);

// A copy on the host of what is in a CUDA device's memory. It is in pinned
// memory, as long as this lives.
class PinnedCopy {
 public:
  // REQUIRES: devices outlives this, and is not null where Take is called.
  explicit PinnedCopy(TensorDevices* devices) : devices_(devices) {}
  ~PinnedCopy() {
    if (memory_ != nullptr) devices_->GiveBack(std::move(memory_));
  }
  PinnedCopy(const PinnedCopy&) = delete;
  PinnedCopy& operator=(const PinnedCopy&) = delete;

  // Copies, once. Arguments and errors as TensorDevices::CopyToHost. REQUIRES:
  // at most kPinnedBytes.
  absl::StatusOr<const char*> Take(int device, const void* from,
                                   int64_t num_bytes);

 private:
  TensorDevices* const devices_;
  std::unique_ptr<PinnedHostMemory> memory_;
};

// Tensors that were bound to the job's, in the manifest's order, and which
// device has each.
template <typename View>
struct BoundViews {
  BoundViews(absl::Span<const View> bound)  // NOLINT: all are on the host
      : views(bound) {}
  BoundViews(absl::Span<const View> bound, absl::Span<const int> of_each,
             TensorDevices* known)
      : views(bound), device_of(of_each), devices(known) {}

  int device(int tensor) const {
    return devices == nullptr ? TensorDevices::kHost
                              : device_of[static_cast<size_t>(tensor)];
  }

  absl::Span<const View> views;
  absl::Span<const int> device_of;
  TensorDevices* devices = nullptr;  // null: all are on the host
  EncodingTally* tally = nullptr;    // of what is rounded; null: nobody counts
};

using BoundRow = BoundViews<TensorView>;             // that is pushed
using BoundTargets = BoundViews<MutableTensorView>;  // that a pull writes into

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TENSOR_DEVICES_H_
