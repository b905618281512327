// Buffers of the CUDA backend, and the part of them that is on the device.
#ifndef AGG_KERNELS_CUDA_CUDA_BUFFER_H_
#define AGG_KERNELS_CUDA_CUDA_BUFFER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/buffer.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/numa_node.h"
#include "kernels/cuda/row_copies.h"
#include "kernels/cuda/snapshot_copies.h"
#include "kernels/device_memory/cuda_driver.h"
#include "kernels/device_memory/device_context.h"
#include "kernels/device_memory/shared_device_memory.h"

namespace agg::cuda {

// How a device's memory is made such that other processes can map it.
// Thread-safe: it never changes.
class DeviceSharing {
 public:
  // `driver_path`: as CudaDriver::Load. An error says why it cannot be:
  // UNIMPLEMENTED if the driver or the device is not made for it, else as
  // CudaDriver::Load. REQUIRES: the runtime uses the device already.
  static absl::StatusOr<std::unique_ptr<const DeviceSharing>> Start(
      const std::string& driver_path, int device);

  const std::shared_ptr<const DeviceContext>& context() const {
    return context_;
  }
  const DeviceUuid& uuid() const { return uuid_; }
  // What each piece of memory is rounded up to.
  int64_t granularity() const { return granularity_; }

 private:
  DeviceSharing(std::shared_ptr<const DeviceContext> context,
                const DeviceUuid& uuid, int64_t granularity)
      : context_(std::move(context)), uuid_(uuid), granularity_(granularity) {}

  const std::shared_ptr<const DeviceContext> context_;
  const DeviceUuid uuid_;
  const int64_t granularity_;
};

// Waits for all that the calling thread's device has to do, then unmaps, which
// by itself need not wait for kernels that use the memory: as safe as cudaFree.
// For the shard alone: a worker would wait for its framework's work.
struct UnmapIdle {
  void operator()(SharedDeviceMemory* memory) const;
};

// The part of a buffer that is on the device: zero-filled memory, plain or
// shared; empty when default. REQUIRES: it ends on
// a thread whose device is its own.
class DeviceSide {
 public:
  // Allocates on the calling thread's device, which `sharing`, if any, is of.
  // Memory that cannot be shared, though the device's can, is plain, with a
  // line on stderr. Errors as AllocateDevice.
  static absl::StatusOr<DeviceSide> Allocate(int64_t num_bytes,
                                             const DeviceSharing* sharing);

  char* data() const {
    return shared_ != nullptr ? shared_->data() : plain_.get();
  }
  const DeviceShare* share() const {
    return shared_ != nullptr ? &share_ : nullptr;
  }

 private:
  DeviceMemory plain_;
  std::unique_ptr<SharedDeviceMemory, UnmapIdle> shared_;
  DeviceShare share_;
};

// kRow: pinned host memory, its own or adopted, and as much on the device.
// kState: on the device alone. kSnapshot: pinned host memory alone, since what
// is published is the master and is copied from there.
class CudaBuffer : public Buffer {
 public:
  // Allocates a buffer on the calling thread's device; the thread that ends it
  // has that device afterwards. Pages of its host memory that nobody has
  // touched come from the NUMA node. `copies` outlives the buffer; `sharing`,
  // if any, is of that device. INVALID_ARGUMENT for a negative size,
  // RESOURCE_EXHAUSTED with the sizes.
  static absl::StatusOr<std::unique_ptr<CudaBuffer>> Allocate(
      BufferUse use, int64_t num_bytes, RowCopies* copies, const NumaNode& node,
      const DeviceSharing* sharing = nullptr);
  // Makes a buffer of the caller's `host` memory, as Backend::Adopt does.
  // INVALID_ARGUMENT, besides, for kState and for less than one byte.
  static absl::StatusOr<std::unique_ptr<CudaBuffer>> Adopt(
      BufferUse use, char* host, int64_t num_bytes, RowCopies* copies,
      const NumaNode& node, const DeviceSharing* sharing,
      absl::Status* registered);
  // Tells `copies` of the buffer's end, unless they are gone by then. REQUIRES:
  // the buffer is a kSnapshot one.
  void NoteCopies(const std::shared_ptr<SnapshotCopies>& copies) {
    snapshots_ = copies;
  }
  ~CudaBuffer() override;
  CudaBuffer(const CudaBuffer&) = delete;
  CudaBuffer& operator=(const CudaBuffer&) = delete;

  char* host() const override { return host_; }
  int64_t num_bytes() const override { return num_bytes_; }
  char* device() const override { return device_.data(); }  // not of kSnapshot
  const DeviceShare* device_share() const override { return device_.share(); }

 private:
  CudaBuffer(int64_t num_bytes, RowCopies* copies);

  absl::Status AllocateDeviceSide(BufferUse use, const DeviceSharing* sharing);

  int device_number_ = 0;
  const int64_t num_bytes_;
  RowCopies* const copies_;
  std::weak_ptr<SnapshotCopies> snapshots_;  // to be told of its end
  char* host_ = nullptr;
  PinnedMemory pinned_;          // one of them is what host_ is in, unless
  RegisteredMemory registered_;  // adopted memory could not be registered
  DeviceSide device_;
};

// Returns the buffer's device address; null stays null.
inline char* DeviceOf(const Buffer* buffer) {
  return buffer == nullptr ? nullptr : buffer->device();
}

// Returns DeviceOf a buffer of float32.
inline float* FloatsOf(const Buffer* buffer) {
  return reinterpret_cast<float*>(DeviceOf(buffer));
}

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_CUDA_BUFFER_H_
