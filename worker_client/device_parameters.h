// The float32 parameters in a shard's memory on a CUDA device (P48).
#ifndef AGG_WORKER_CLIENT_DEVICE_PARAMETERS_H_
#define AGG_WORKER_CLIENT_DEVICE_PARAMETERS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device_memory/device_context.h"
#include "kernels/device_memory/device_stream.h"
#include "kernels/device_memory/shared_device_memory.h"
#include "proto/region.pb.h"
#include "server/base/file_descriptor.h"
#include "server/base/shared_memory.h"
#include "worker_client/tensor_devices.h"

namespace agg {

// Parameters that are mapped for a device of the caller's: the one that has
// them, or a peer of that. The shard overwrites them with another version in
// each round, and says so before, by the generation. Thread-safe.
class DeviceParameters {
 public:
  // Maps the parameters for `device`. `generation`: the descriptor of the page
  // with it. UNIMPLEMENTED: the device has no way to that memory; INTERNAL: not
  // float32, or no UUID; errors of SharedDeviceMemory::Map and
  // SharedMemory::Map. REQUIRES: devices has met the device, and outlives this.
  static absl::StatusOr<std::unique_ptr<DeviceParameters>> Map(
      const v1::DeviceRegion& said, const FileDescriptor& memory,
      const FileDescriptor& generation, int device, TensorDevices* devices);

  uint32_t number() const { return number_; }
  // Whether a copy has failed, other than by ABORTED: it is not tried again.
  bool failed() const { return failed_; }
  // Device whose memory is copied to.
  int device() const { return context_->device(); }
  // Whether `num_bytes` bytes at `offset`, as the shard says it, are floats of
  // these parameters.
  bool Has(uint64_t offset, int64_t num_bytes) const;

  struct Place {
    uint64_t offset = 0;
    float* to = nullptr;  // memory of this device
    int64_t num_bytes = 0;
  };
  // Begins copies, which Finish ends, after an error, too. What the caller gave
  // the device to do with its memory is done (DeviceMark::Reached). INTERNAL:
  // the driver's errors. REQUIRES: Has.
  absl::Status Begin(absl::Span<const Place> places) const;
  // Waits for what was begun. ABORTED: the shard has begun to overwrite the
  // generation: what was copied is nothing. INTERNAL: as Begin.
  absl::Status Finish(uint64_t generation) const;

 private:
  DeviceParameters(uint32_t number,
                   std::shared_ptr<const DeviceContext> context,
                   std::unique_ptr<SharedDeviceMemory> memory,
                   std::unique_ptr<SharedMemory> page,
                   std::unique_ptr<DeviceStream> stream)
      : number_(number),
        context_(std::move(context)),
        memory_(std::move(memory)),
        page_(std::move(page)),
        stream_(std::move(stream)) {}
  // Returns `status` as DeviceError tells it; after an error nothing is tried
  // again.
  absl::Status Note(const absl::Status& status) const;

  const uint32_t number_;
  mutable std::atomic<bool> failed_{false};
  const std::shared_ptr<const DeviceContext> context_;
  const std::unique_ptr<SharedDeviceMemory> memory_;
  const std::unique_ptr<SharedMemory> page_;
  const std::unique_ptr<DeviceStream> stream_;  // of all pulls
};

// Parameters of one shard, as several devices see them, by device.
using ParametersByDevice = std::map<int, const DeviceParameters*>;

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_DEVICE_PARAMETERS_H_
