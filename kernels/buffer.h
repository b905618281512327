// The memory that a backend computes on.
#ifndef AGG_KERNELS_BUFFER_H_
#define AGG_KERNELS_BUFFER_H_

#include <array>
#include <cstdint>

namespace agg {

// Elements [begin, begin + num_elements) of a shard's layout. `begin` is a
// multiple of kLayoutAlignment, for int8 rows of LayoutAlignment
// (row_format.h).
struct ElementRange {
  int64_t begin = 0;
  int64_t num_elements = 0;
};

// Slices start at multiples of this many elements: 64 bytes at 2 bytes each.
inline constexpr int64_t kLayoutAlignment = 32;

// kRow: written by the host (landing), read by the backend. kState: master
// weights and optimizer state, touched by the backend alone. kSnapshot:
// written by the backend, read by the host (and written by it for the seed, and
// for a combined gradient that another process has formed).
enum class BufferUse : uint8_t { kRow, kState, kSnapshot };

// How another process maps a buffer's memory on a device: a descriptor of
// CUDA's virtual memory management, which the buffer owns.
struct DeviceShare {
  int fd = -1;
  int64_t mapped_bytes = 0;  // of the allocation: at least the buffer's bytes
  std::array<uint8_t, 16> uuid = {};  // of the device
};

// Memory that a backend computes on. Owned by the caller, must not outlive
// the Backend. Zero-filled when allocated.
class Buffer {
 public:
  virtual ~Buffer() = default;
  // Host address, 64-byte aligned; nullptr for kState of a device backend.
  virtual char* host() const = 0;
  virtual int64_t num_bytes() const = 0;
  // Where the device of its backend has it; nullptr: nowhere.
  virtual char* device() const { return nullptr; }
  // How device() is mapped by other processes; nullptr: it cannot be. Owned by
  // the buffer.
  virtual const DeviceShare* device_share() const { return nullptr; }
};

// What computing takes besides the buffers, and where buffers are.
struct MemoryNeeds {
  int64_t scratch_bytes = 0;  // on the host
  // A device with memory of its own has kRow buffers, too, kState ones alone,
  // and one narrowed copy of a snapshot; kSnapshot ones are on the host alone.
  bool on_device = false;
  int64_t device_scratch_bytes = 0;
};

// The device's memory, all processes included; zeros without a device.
struct DeviceMemoryUse {
  int64_t total_bytes = 0;
  int64_t used_bytes = 0;
};

}  // namespace agg

#endif  // AGG_KERNELS_BUFFER_H_
