// Which tensors of the caller's are in the memory of CUDA devices, and copies
// between that and the host's. Apart from what sends and receives, so that
// nothing else of the client calls the driver for a copy.
#ifndef AGG_WORKER_CLIENT_TENSOR_DEVICES_H_
#define AGG_WORKER_CLIENT_TENSOR_DEVICES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device_memory/cuda_driver.h"
#include "kernels/device_memory/device_context.h"
#include "kernels/device_memory/device_stream.h"
#include "kernels/device_memory/registered_memory.h"
#include "proto/shard_plan.h"
#include "server/base/mutex.h"
#include "worker_client/device_mark.h"
#include "worker_client/tensor_view.h"

namespace agg {

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

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TENSOR_DEVICES_H_
