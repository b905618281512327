// The device's side of a worker's row: a shard's memory on a CUDA device (P47).
#ifndef AGG_WORKER_CLIENT_DEVICE_ROW_H_
#define AGG_WORKER_CLIENT_DEVICE_ROW_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device_memory/device_context.h"
#include "kernels/device_memory/device_stream.h"
#include "kernels/device_memory/shared_device_memory.h"
#include "kernels/dtype.h"
#include "proto/region.pb.h"
#include "server/base/file_descriptor.h"
#include "worker_client/tensor_devices.h"

namespace agg {

// A row that is mapped for a device of the caller's: the one that has it, or a
// peer of that. It has a stream of its own for copies to it. For one push at a
// time.
class DeviceRow {
 public:
  // Maps the row for `device`. UNIMPLEMENTED: it has no way to that memory;
  // INTERNAL: the row is not of `dtype`, smaller than the host's side, larger
  // than it says, or has no UUID; errors of SharedDeviceMemory::Map. REQUIRES:
  // devices has met the device, and outlives this.
  static absl::StatusOr<std::unique_ptr<DeviceRow>> Map(
      const v1::DeviceRegion& said, DType dtype, int64_t host_bytes,
      const FileDescriptor& fd, int device, TensorDevices* devices);
  // Waits for the copies.
  ~DeviceRow();
  DeviceRow(const DeviceRow&) = delete;
  DeviceRow& operator=(const DeviceRow&) = delete;

  // Device whose memory is copied from.
  int device() const { return context_->device(); }

  // Copies from memory of this device, or of the host, to an offset of the row.
  // The memory must be as it is to be (DeviceMark::Reached), and stay so until
  // the copies are done. Neighbours of one `owner`, one behind the other in
  // both places, become one copy. (`owner` is one tensor, say: the driver
  // refuses copies across two allocations.) REQUIRES: the place is inside.
  absl::Status Copy(int64_t owner, const char* from, int64_t offset,
                    int64_t num_bytes);
  // Marks the copies so far: Await waits until they are done, and is called
  // once.
  absl::StatusOr<std::unique_ptr<DeviceEvent>> Mark();
  absl::Status Await(std::unique_ptr<DeviceEvent> event);
  // Waits, after an error, for what was begun, and begins no more of it.
  void Discard();

  // Number of times that the driver was asked to copy, for a test.
  int64_t num_copies() const { return num_copies_; }

 private:
  DeviceRow(std::shared_ptr<const DeviceContext> context,
            std::unique_ptr<SharedDeviceMemory> memory,
            std::unique_ptr<DeviceStream> stream)
      : context_(std::move(context)),
        memory_(std::move(memory)),
        stream_(std::move(stream)) {}
  // Gives what has gathered to the stream.
  absl::Status Flush();

  const std::shared_ptr<const DeviceContext> context_;
  const std::unique_ptr<SharedDeviceMemory> memory_;
  const std::unique_ptr<DeviceStream> stream_;
  std::vector<std::unique_ptr<DeviceEvent>> free_;
  // The copy that gathers.
  int64_t owner_ = 0;
  const char* from_ = nullptr;
  int64_t offset_ = 0;
  int64_t num_bytes_ = 0;  // 0: none
  int64_t num_copies_ = 0;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_DEVICE_ROW_H_
