// Types and constants of the CUDA driver's functions that the project uses
// (cuda_functions.h), by hand: neither a build nor a host needs a toolkit.
// Tests compare them with cuda.h where there is one.
#ifndef AGG_KERNELS_DEVICE_MEMORY_CUDA_ABI_H_
#define AGG_KERNELS_DEVICE_MEMORY_CUDA_ABI_H_

#include <cstdint>

namespace agg::cuda_abi {

using Context = void*;
using Stream = void*;  // null: the legacy default stream
using Event = void*;
using Pointer = uint64_t;  // CUdeviceptr: an address of unified addressing
using Handle = uint64_t;   // CUmemGenericAllocationHandle

struct Uuid {
  char bytes[16];
};

struct Location {
  int type;
  int id;
};

struct AllocationProp {
  int type;
  int requested_handle_types;
  Location location;
  void* win32_meta_data;
  struct {
    unsigned char compression_type;
    unsigned char gpu_direct_rdma_capable;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};

struct AccessDesc {
  Location location;
  int flags;
};

// CUresult
inline constexpr int kSuccess = 0;
inline constexpr int kInvalidValue = 1;
inline constexpr int kOutOfMemory = 2;
inline constexpr int kNotInitialized = 3;
inline constexpr int kStubLibrary = 34;
inline constexpr int kNoDevice = 100;
inline constexpr int kInvalidDevice = 101;
inline constexpr int kInvalidContext = 201;
inline constexpr int kNotReady = 600;
inline constexpr int kNotSupported = 801;

// CUdevice_attribute, CUpointer_attribute, and values of kPointerMemoryType
inline constexpr int kVirtualMemoryManagementSupported = 102;
inline constexpr int kPosixFileDescriptorSupported = 103;
inline constexpr int kPointerMemoryType = 2;
inline constexpr int kPointerDeviceOrdinal = 9;
inline constexpr unsigned kMemoryTypeHost = 1;
inline constexpr unsigned kMemoryTypeDevice = 2;

// Constants of memory, streams and events
inline constexpr int kAllocationTypePinned = 1;
inline constexpr int kLocationTypeDevice = 1;
inline constexpr int kHandleTypePosixFileDescriptor = 1;
inline constexpr int kGranularityMinimum = 0;
inline constexpr int kAccessReadWrite = 3;
inline constexpr unsigned kRegisterPortable = 1;
inline constexpr unsigned kRegisterReadOnly = 8;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr int kCaptureModeThreadLocal = 1;
inline constexpr unsigned kEventBlockingSync = 1;
inline constexpr unsigned kEventDisableTiming = 2;

}  // namespace agg::cuda_abi

#endif  // AGG_KERNELS_DEVICE_MEMORY_CUDA_ABI_H_
