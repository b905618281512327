// The CUDA driver's functions that the project uses, with their types and
// constants, by hand: neither a build nor a host needs a toolkit. Tests compare
// them with cuda.h where there is one. The driver keeps a function as it is for
// as long as it has its name.
#ifndef AGG_KERNELS_DEVICE_MEMORY_CUDA_ABI_H_
#define AGG_KERNELS_DEVICE_MEMORY_CUDA_ABI_H_

#include <cstddef>
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

// LINE(name of the driver's symbol, its parameters). All return a CUresult.
#define AGG_CUDA_FUNCTIONS(LINE)                                               \
  LINE(cuGetErrorName, (int error, const char** name))                         \
  LINE(cuInit, (unsigned flags))                                               \
  LINE(cuDeviceGetCount, (int* count))                                         \
  LINE(cuDeviceGet, (int* device, int ordinal))                                \
  LINE(cuDeviceGetAttribute, (int* value, int attribute, int device))          \
  LINE(cuDeviceCanAccessPeer, (int* can, int device, int peer))                \
  LINE(cuDevicePrimaryCtxGetState, (int device, unsigned* flags, int* active)) \
  LINE(cuDevicePrimaryCtxRetain, (Context * context, int device))              \
  LINE(cuDevicePrimaryCtxRelease_v2, (int device))                             \
  LINE(cuCtxPushCurrent_v2, (Context context))                                 \
  LINE(cuCtxPopCurrent_v2, (Context * context))                                \
  LINE(cuThreadExchangeStreamCaptureMode, (int* mode))                         \
  LINE(cuPointerGetAttribute, (void* data, int attribute, Pointer pointer))    \
  LINE(cuMemGetAllocationGranularity,                                          \
       (size_t * granularity, const AllocationProp* prop, int option))         \
  LINE(cuMemCreate, (Handle * handle, size_t size, const AllocationProp* prop, \
                     unsigned long long flags))                                \
  LINE(cuMemRelease, (Handle handle))                                          \
  LINE(cuMemAddressReserve, (Pointer * pointer, size_t size, size_t alignment, \
                             Pointer address, unsigned long long flags))       \
  LINE(cuMemAddressFree, (Pointer pointer, size_t size))                       \
  LINE(cuMemMap, (Pointer pointer, size_t size, size_t offset, Handle handle,  \
                  unsigned long long flags))                                   \
  LINE(cuMemUnmap, (Pointer pointer, size_t size))                             \
  LINE(cuMemSetAccess,                                                         \
       (Pointer pointer, size_t size, const AccessDesc* access, size_t count)) \
  LINE(cuMemExportToShareableHandle,                                           \
       (void* shareable, Handle handle, int type, unsigned long long flags))   \
  LINE(cuMemImportFromShareableHandle,                                         \
       (Handle * handle, void* os_handle, int type))                           \
  LINE(cuMemcpyAsync, (Pointer to, Pointer from, size_t size, Stream stream))  \
  LINE(cuMemcpyDtoHAsync_v2,                                                   \
       (void* to, Pointer from, size_t size, Stream stream))                   \
  LINE(cuMemcpyHtoDAsync_v2,                                                   \
       (Pointer to, const void* from, size_t size, Stream stream))             \
  LINE(cuMemAllocHost_v2, (void** memory, size_t size))                        \
  LINE(cuMemFreeHost, (void* memory))                                          \
  LINE(cuMemHostRegister_v2, (void* memory, size_t size, unsigned flags))      \
  LINE(cuMemHostUnregister, (void* memory))                                    \
  LINE(cuStreamCreate, (Stream * stream, unsigned flags))                      \
  LINE(cuStreamDestroy_v2, (Stream stream))                                    \
  LINE(cuStreamSynchronize, (Stream stream))                                   \
  LINE(cuEventCreate, (Event * event, unsigned flags))                         \
  LINE(cuEventRecord, (Event event, Stream stream))                            \
  LINE(cuEventQuery, (Event event))                                            \
  LINE(cuEventSynchronize, (Event event))                                      \
  LINE(cuEventDestroy_v2, (Event event))

// Either of cuDeviceGetUuid_v2, which tells parts of a device (MIG) from each
// other, and cuDeviceGetUuid, of drivers before 11.4.
using UuidFunction = int(Uuid* uuid, int device);

// Where the driver has them.
struct Functions {
#define AGG_CUDA_MEMBER(name, parameters) int(*name) parameters = nullptr;
  AGG_CUDA_FUNCTIONS(AGG_CUDA_MEMBER)
#undef AGG_CUDA_MEMBER
  UuidFunction* get_uuid = nullptr;
};

}  // namespace agg::cuda_abi

#endif  // AGG_KERNELS_DEVICE_MEMORY_CUDA_ABI_H_
