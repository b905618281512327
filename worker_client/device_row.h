// The device's side of a worker's row: a shard's memory on a CUDA device (P47).
#ifndef AGG_WORKER_CLIENT_DEVICE_ROW_H_
#define AGG_WORKER_CLIENT_DEVICE_ROW_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device_memory/device_context.h"
#include "kernels/device_memory/device_stream.h"
#include "kernels/device_memory/shared_device_memory.h"
#include "kernels/dtype.h"
#include "proto/region.pb.h"
#include "server/base/dcheck.h"
#include "server/base/file_descriptor.h"
#include "server/base/mutex.h"
#include "server/base/shared_memory.h"
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

// The caller's devices that copy to one shard's row on its device (P47). Add
// and the two questions, has and has_any, are thread-safe; the rest is for one
// push at a time.
class RowDevices {
 public:
  // Adds the row as one of the devices sees it, for rows that begin from here
  // on; one that has failed is not replaced.
  void Add(std::shared_ptr<DeviceRow> row);
  bool has(int device) const;
  bool has_any() const;

  // Begins a row whose tensors these devices have: it goes to the shard's
  // device if all of them have a way to it, and there are any.
  void Begin(const std::set<int>& devices);
  bool used() const { return !current_.empty(); }
  // Returns the row as `device` sees it; null: it has no way.
  DeviceRow* Find(int device);
  // Returns one of those that copy. REQUIRES: used().
  DeviceRow* any() const {
    AGG_DCHECK(used());
    return current_.begin()->second.get();
  }

  // The copies of some slices, by each device that has begun some.
  using Copies =
      std::vector<std::pair<DeviceRow*, std::unique_ptr<DeviceEvent>>>;
  // Marks the copies that `rows` have begun so far.
  static absl::StatusOr<Copies> Mark(const std::set<DeviceRow*>& rows);
  // Waits until they are done; once.
  static absl::Status Await(Copies copies);
  // Gives up after an error: no copy is under way any more; used() is false,
  // and none of these devices copies to this row again.
  void GiveUp();

 private:
  std::map<int, std::shared_ptr<DeviceRow>> current_;  // of the row that began
  mutable Mutex mutex_;
  // Null: copies of it have failed.
  std::map<int, std::shared_ptr<DeviceRow>> rows_ ABSL_GUARDED_BY(mutex_);
};

// The float32 parameters in a shard's memory on a CUDA device (P48). They are
// mapped for a device of the caller's: the one that has them, or a peer of
// that. The shard overwrites them with another version in each round, and says
// so before, by the generation. Thread-safe.
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
    int64_t owner = 0;  // one tensor, say: as DeviceRow::Copy's
    uint64_t offset = 0;
    float* to = nullptr;  // memory of this device
    int64_t num_bytes = 0;
  };
  // Begins copies, which Finish ends, after an error, too: one for neighbours
  // of one owner, since a device needs microseconds for each. What the caller
  // gave the device to do with its memory is done (DeviceMark::Reached).
  // INTERNAL: the driver's errors. REQUIRES: Has.
  absl::Status Begin(absl::Span<const Place> places) const;
  // Waits for what was begun. ABORTED: the shard has begun to overwrite the
  // generation: what was copied is nothing. INTERNAL: as Begin.
  absl::Status Finish(uint64_t generation) const;

  // Number of times that the driver was asked to copy, for a test.
  int64_t num_copies() const { return num_copies_; }

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
  mutable std::atomic<int64_t> num_copies_{0};
  const std::shared_ptr<const DeviceContext> context_;
  const std::unique_ptr<SharedDeviceMemory> memory_;
  const std::unique_ptr<SharedMemory> page_;
  const std::unique_ptr<DeviceStream> stream_;  // of all pulls
};

// Parameters of one shard, as several devices see them, by device.
using ParametersByDevice = std::map<int, const DeviceParameters*>;

// Memory of others that is registered with the driver when a device first
// copies from or to it: what no device copies is not locked. This is the
// registration of one mapping, which outlives this. Thread-safe.
class LazyRegistration {
 public:
  LazyRegistration(void* data, int64_t num_bytes,
                   RegisteredMemory::Access access)
      : data_(data), num_bytes_(num_bytes), access_(access) {}

  // Whether devices copy from and to it by themselves. The first call decides
  // it, and takes as long as RegisteredMemory::Register. REQUIRES: devices has
  // met the device.
  bool IsRegistered(int device, TensorDevices* devices) {
    MutexLock lock(&mutex_);
    if (!tried_)
      memory_ = devices->Register(device, data_, num_bytes_, access_);
    tried_ = true;
    return memory_ != nullptr;
  }

 private:
  void* const data_;
  const int64_t num_bytes_;
  const RegisteredMemory::Access access_;
  Mutex mutex_;
  bool tried_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<RegisteredMemory> memory_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_DEVICE_ROW_H_
